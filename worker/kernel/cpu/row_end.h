#ifndef ANNULUS_WORKER_KERNEL_CPU_ROW_END_H_
#define ANNULUS_WORKER_KERNEL_CPU_ROW_END_H_

#include <cstdint>

#include "attention/numerics/partial.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Ends rows of a running state: writes their part of a kOut block. Keeps job, block and table,
// which must outlive it; threads may share it.
class RowEnd {
 public:
  RowEnd(const KernelJob& job, const BlockView& out, const TileIsa& isa);

  // Output, LSE and, where the job has them, maximum and rest of the LSE of a row. `sums` are
  // read unless nothing was seen. The thread keeps subnormal numbers meanwhile (flush_denormals.h).
  void Write(int64_t row, int32_t head, const RowState& state, const float* sums) const {
    WriteStatistics(row, head, state, WriteOutput(row, head, state, sums));
  }
  // The same in two: the output, which returns the LSE, and the rest. A row's heads have their
  // statistics in one line, so that threads which write to it between outputs wait for each other.
  float WriteOutput(int64_t row, int32_t head, const RowState& state, const float* sums) const;
  void WriteStatistics(int64_t row, int32_t head, const RowState& state, float lse) const;
  // Asks for the lines that WriteOutput will write.
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
