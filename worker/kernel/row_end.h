#ifndef ANNULUS_WORKER_KERNEL_ROW_END_H_
#define ANNULUS_WORKER_KERNEL_ROW_END_H_

#include <cstdint>

#include "attention/partial.h"
#include "base/streaming_writer.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/tile_isa.h"

namespace annulus {

// Ends rows of a running state: writes their part of a kOut block. Keeps job, block and table,
// which must outlive it; threads may share it.
class RowEnd {
 public:
  RowEnd(const KernelJob& job, const BlockView& out, const TileIsa& isa);

  // Output, LSE and, where the job asks for it, maximum of a row that the block has. `sums` are
  // read unless nothing was seen. The output goes through `writer` where there is one. The thread
  // keeps subnormal numbers meanwhile (flush_denormals.h).
  void Write(int64_t row, int32_t head, const RowState& state, const float* sums,
             StreamingWriter* writer = nullptr) const;

 private:
  const KernelJob& job_;
  const TileIsa& isa_;
  const FinishRule rule_;
  const BlockRows out_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_ROW_END_H_
