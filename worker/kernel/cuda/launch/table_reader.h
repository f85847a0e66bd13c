#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_READER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_READER_H_

#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

// Reads ForwardArgs and its tables.
template <class GPU>
struct TableReader {
  GPU& gpu;
  const ForwardArgs& args;

  template <class T>
  ANNULUS_GPU T Get(int64_t table, int64_t index) const {
    return gpu.template Load<T>(args.tables + table + index * static_cast<int64_t>(sizeof(T)));
  }
  // The index of the last of table[0 … count) that is at most `value`. Requires: entries increase,
  // and the first is at most `value`.
  ANNULUS_GPU int32_t LastNotAbove(int64_t table, int64_t stride, int32_t count,
                                   int32_t value) const {
    int32_t low = 0, high = count;
    while (high - low > 1) {
      const int32_t middle = (low + high) / 2;
      if (gpu.template Load<int32_t>(args.tables + table + middle * stride) <= value)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
  ANNULUS_GPU int32_t PackedRow(int32_t first_run, int32_t runs, int32_t local) const {
    const int64_t table = args.at.runs + first_run * static_cast<int64_t>(sizeof(RowRun));
    const RowRun run = Get<RowRun>(table, LastNotAbove(table, sizeof(RowRun), runs, local));
    const int32_t i = local - run.local;
    return run.first + i / run.block * run.stride + i % run.block;
  }
};

// The address of a row and head of a block, plus `offset`.
ANNULUS_GPU std::byte* At(const BlockAt& block, int64_t row, int64_t head, int64_t offset,
                          int64_t head_bytes) {
  return block.data + (row - block.row_begin) * block.row_bytes + offset +
         (head - block.head_begin) * head_bytes;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_TABLE_READER_H_
