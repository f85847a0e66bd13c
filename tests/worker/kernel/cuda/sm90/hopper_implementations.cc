#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/implementations.h"

namespace annulus {

// The sm_90a kernel if it serves a job, otherwise the portable one.
std::vector<std::string> KernelNames() { return {"hopper"}; }

bool KernelsAreSlow() { return true; }

std::unique_ptr<AttentionKernel> MakeKernel(const std::string&, int) {
  return cuda::MakeEmulatedHopperKernel(/*max_tables=*/32 << 10, /*seed=*/20261122);
}

}  // namespace annulus
