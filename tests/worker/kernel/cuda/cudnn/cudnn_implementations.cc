#include "tests/worker/kernel/cuda/cudnn/emulated_cudnn.h"
#include "tests/worker/kernel/implementations.h"

namespace annulus {

std::vector<std::string> KernelNames() { return {"cudnn"}; }

bool KernelsAreSlow() { return true; }

std::unique_ptr<AttentionKernel> MakeKernel(const std::string&, int) {
  return cuda::MakeEmulatedCudnnKernel(std::make_shared<cuda::CudnnStandIn>(),
                                       cuda::SmallCudnnRule());
}

}  // namespace annulus
