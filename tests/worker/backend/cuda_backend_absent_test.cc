// A program built without the CUDA toolkit.

#include <gtest/gtest.h>

#include "worker/backend/cuda_backend.h"

namespace annulus {
namespace {

TEST(CudaBackendAbsent, SaysSo) {
  EXPECT_EQ(GpusHere().status().message(), "this program was built without CUDA");
  EXPECT_EQ(MakeCudaEngine({}, 0).status(), GpusHere().status());
  EXPECT_EQ(CheckHopperOn("cuda:0", Operation::kForward), GpusHere().status());
}

}  // namespace
}  // namespace annulus
