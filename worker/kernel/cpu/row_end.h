#ifndef ANNULUS_WORKER_KERNEL_CPU_ROW_END_H_
#define ANNULUS_WORKER_KERNEL_CPU_ROW_END_H_

#include <cstdint>

#include "attention/numerics/partial.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The epilogue of rows of a running state: writes their part of a kOut block. Keeps references to
// job, block and table, which must outlive it. Threads may share it.
class RowEnd {
 public:
  RowEnd(const KernelJob& job, const BlockView& out, const TileIsa& isa);

  // Writes output and LSE of a row, and maximum and rest of the LSE if the job has them. Reads
  // `sums` only if the row has seen a key. The calling thread must keep subnormal numbers
  // (flush_denormals.h).
  void Write(int64_t row, int32_t head, const RowState& state, const float* sums) const {
    WriteStatistics(row, head, state, WriteOutput(row, head, state, sums));
  }
  // Write in two parts: the output, which returns the LSE, and then the statistics. The statistics
  // of a row's heads share a cache line. Threads that write to it between outputs wait for each
  // other.
  float WriteOutput(int64_t row, int32_t head, const RowState& state, const float* sums) const;
  void WriteStatistics(int64_t row, int32_t head, const RowState& state, float lse) const;
  // Prefetches the lines that WriteOutput will write.
  void FetchOutput(int64_t row, int32_t head) const;

 private:
  FinishRule RuleOfHead(int32_t head) const;

  const KernelJob& job_;
  const TileIsa& isa_;
  const FinishRule rule_;
  const BlockRows out_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ROW_END_H_
