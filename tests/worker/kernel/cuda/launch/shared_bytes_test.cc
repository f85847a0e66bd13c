#include "worker/kernel/cuda/sm80/shared_bytes.h"

#include <gtest/gtest.h>

namespace annulus::cuda {
namespace {

// No selectable kernel needs more, and one needs exactly this.
TEST(SharedBytes, TheMostIsThatOfSomeKernel) {
  int64_t most = 0;
  for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16}) {
    for (const int dim : {64, 128, 256}) {
      for (const bool changes : {false, true}) {
        const ForwardKind kind = {element, dim, changes};
        most = std::max(most, SharedBytesOf(kind));
        for (const GradientSide side : {GradientSide::kQueries, GradientSide::kKeysAndValues,
                                        GradientSide::kKeys, GradientSide::kValues}) {
          if (side != GradientSide::kKeysAndValues || dim <= 128)
            most = std::max(most, SharedBytesOf(GradientKind{kind, side}));
        }
      }
    }
  }
  EXPECT_EQ(kMostSharedBytes, most);
}

}  // namespace
}  // namespace annulus::cuda
