#include "tests/worker/kernel/implementations.h"

#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"

namespace annulus {

std::vector<std::string> KernelNames() { return {"cuda"}; }

bool KernelsAreSlow() { return true; }

std::unique_ptr<AttentionKernel> MakeKernel(const std::string&, int) {
  return cuda::MakeEmulatedKernel(/*max_tables=*/32 << 10);
}

}  // namespace annulus
