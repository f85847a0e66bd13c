#ifndef ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_
#define ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus::bench {

// The CPU kernel that a benchmark's arguments select.
struct MeasuredKernel {
  std::unique_ptr<CpuKernel> kernel;
  int threads;
  std::string path;  // The actual path's name, also for "auto".
};

// Parses [--threads N] [--path NAME]; defaults: 2 and "auto". Appends other arguments to `others`,
// or refuses them if that is nullptr. Prints CPU and path on standard error. Ends the process with
// a line there if there is no such kernel.
MeasuredKernel KernelOfArguments(int argc, const char* const* argv,
                                 std::vector<std::string>* others);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_
