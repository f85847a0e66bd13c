// Prints the GPU that this program would use as a JSON object, or a one-line reason why there is
// none (exit code 3). Creates only a context on the GPU.

#include <cstdio>
#include <iostream>

#include "nlohmann/json.hpp"
#include "worker/device/cuda_context.h"
#include "worker/device/cuda_runtime.h"
#include "worker/kernel/cuda/sm80/shared_bytes.h"

namespace annulus {
namespace {

constexpr int kNoGpu = 3;

int Main() {
  CudaContext::Options options;
  options.workspace_bytes = 1 << 20;
  options.shared_bytes = cuda::kMostSharedBytes;
  const auto context = CudaContext::Create(CudaRuntime(), options);
  if (!context.ok()) {
    std::cerr << context.status().message() << "\n";
    return kNoGpu;
  }
  const CudaProperties& gpu = (*context)->properties();
  nlohmann::ordered_json said = {{"device", gpu.name},
                                 {"description", (*context)->description()},
                                 {"capability", gpu.major * 10 + gpu.minor},
                                 {"multiprocessors", gpu.multiprocessors},
                                 {"memory_bytes", gpu.memory_bytes}};
  std::cout << said.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace annulus

int main() { return annulus::Main(); }
