#ifndef ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_
#define ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus::bench {

// The CPU kernel that a benchmark's arguments ask for.
struct MeasuredKernel {
  std::unique_ptr<CpuKernel> kernel;
  int threads;
  std::string path;  // Its own name, where "auto" was asked for too.
};

// From [--threads N] [--path NAME], 2 and "auto" where they are not given; other arguments go to
// `others`, or are refused where that is nullptr. Ends the process, with a line on standard error,
// where there is no such kernel: a benchmark has no other use. Says CPU and path there.
MeasuredKernel KernelOfArguments(int argc, const char* const* argv,
                                 std::vector<std::string>* others);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_MEASURED_KERNEL_H_
