#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_PTXAS_REPORT_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_PTXAS_REPORT_H_

#include <map>
#include <string>
#include <utility>

namespace annulus::cuda {

// The report of ptxas for a kernel: bytes stored and loaded by spills, registers, and bytes of
// stack of a thread.
struct PtxasReport {
  int spilled = -1, registers = -1, stack = -1;
};

// By architecture and mangled name. `source`: "forward_bf16", ... The test has its reports as data.
using PtxasReports = std::map<std::pair<std::string, std::string>, PtxasReport>;
PtxasReports ReadPtxasReports(const std::string& source);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_PTXAS_REPORT_H_
