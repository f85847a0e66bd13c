#ifndef ANNULUS_WORKER_KERNEL_CUDA_OP_MEANS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OP_MEANS_H_

#include "worker/kernel/cuda/op_cell.h"

namespace annulus::cuda {

// Merges a partial whose sums are divided by its weights into one whose sums are not. A row whose
// scores are all −infinity has seen them all the same (docs/numerics.md). So has one of which NaN
// has hidden every max.
template <class GPU>
ANNULUS_GPU void MergeMeans(const OpCell<GPU>& cell, int64_t row, int64_t head) {
  float from_max = cell.Read(cell.Source(row, head, 1));
  float from_weight = cell.Read(cell.Source(row, head, 2));
  const float max = cell.Read(cell.Target(row, head, 1));
  const float weight = cell.Read(cell.Target(row, head, 2));
  cell.gpu.SyncWarp();  // Before the first lane writes what others read.
  const bool take = max == -Infinity(), lost = from_max == -Infinity();
  if (lost) {
    from_max = -BitsAs<float>(0x7f7fffffu);
    from_weight = from_weight != from_weight ? from_weight : 0.0f;
  }
  const float top = max < from_max ? from_max : max;
  const float mine = cell.Share(max, top), theirs = cell.Share(from_max, top);
  const std::byte* from = cell.Source(row, head, 0);
  std::byte* to = cell.Target(row, head, 0);
  for (int i = cell.lane; i < cell.args.value_dim; i += 32) {
    const float more = lost ? from_weight : from_weight * cell.Read(from + i * 4);
    cell.Write(to + i * 4, take ? more : mine * cell.Read(to + i * 4) + theirs * more);
  }
  if (cell.lane != 0) return;
  cell.SetState(row, head, take ? from_max : top,
                take ? from_weight : mine * weight + theirs * from_weight);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OP_MEANS_H_
