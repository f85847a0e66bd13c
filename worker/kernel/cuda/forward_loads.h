#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_LOADS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_LOADS_H_

#include "worker/kernel/cuda/forward_slots.h"

namespace annulus::cuda {

// Columns that the products read: whole steps of 16.
ANNULUS_GPU int32_t Columns(int32_t dim) { return (dim + 15) / 16 * 16; }

// Brings rows of a tensor to shared memory, zeros where there is no row or no column, without
// waiting where 16 bytes at a time may be copied. All threads of a block together.
template <class GPU, class CONFIG>
struct RowLoader {
  GPU& gpu;
  const ForwardArgs& args;
  int32_t dim;
  bool whole;

  // `row_of` gives the address of a row, or nullptr.
  template <class ROW_OF>
  ANNULUS_GPU void Load(uint32_t to, int rows, const ROW_OF& row_of) const {
    if (whole)
      CopyChunks(to, rows, row_of);
    else
      CopyWords(to, rows, row_of);
  }

 private:
  template <class ROW_OF>
  ANNULUS_GPU void CopyChunks(uint32_t to, int rows, const ROW_OF& row_of) const {
    constexpr int kChunks = CONFIG::kDim * CONFIG::kBytes / 16;
    const int chunk = gpu.Thread() % kChunks;
    if (chunk * 16 >= Columns(dim) * CONFIG::kBytes) return;
    for (int row = gpu.Thread() / kChunks; row < rows; row += kThreads / kChunks) {
      const std::byte* from = row_of(row);
      const bool there = from != nullptr && chunk * 16 < dim * CONFIG::kBytes;
      gpu.CopyChunkLater(to + row * CONFIG::kRowBytes + chunk * 16,
                         there ? from + chunk * 16 : args.tables, there);
    }
  }

  template <class ROW_OF>
  ANNULUS_GPU void CopyWords(uint32_t to, int rows, const ROW_OF& row_of) const {
    constexpr int kWords = CONFIG::kDim * CONFIG::kBytes / 4;
    for (int i = gpu.Thread(); i < rows * kWords; i += kThreads) {
      const int row = i / kWords, word = i % kWords;
      if (word * 4 >= Columns(dim) * CONFIG::kBytes) continue;
      const std::byte* from = row_of(row);
      gpu.template StoreShared<uint32_t>(to + row * CONFIG::kRowBytes + word * 4,
                                         from == nullptr ? 0 : Word(from, word));
    }
  }

  // Columns past the last are 0.
  ANNULUS_GPU uint32_t Word(const std::byte* row, int word) const {
    if constexpr (CONFIG::kWide) {
      return word < dim ? gpu.template Load<uint32_t>(row + word * 4) : 0;
    } else {
      uint32_t value = 0;
      if (2 * word < dim) value = gpu.template Load<uint16_t>(row + word * 4);
      if (2 * word + 1 < dim)
        value |= static_cast<uint32_t>(gpu.template Load<uint16_t>(row + word * 4 + 2)) << 16;
      return value;
    }
  }
};

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadQueries(GPU& gpu, const ForwardArgs& args, const ForwardTask& task) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim, task.q_whole};
  loader.Load(CONFIG::kQueriesAt, kTileSlots, [&](int slot) -> const std::byte* {
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(task.q, row, head, 0, int64_t{args.head_dim} * CONFIG::kBytes);
  });
}

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadKeys(GPU& gpu, const ForwardArgs& args, const ForwardTask& task,
                          int32_t kv_head, int32_t tile) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim, task.k_whole};
  loader.Load(CONFIG::kKeysAt, CONFIG::kKeys, [&](int i) -> const std::byte* {
    const int32_t key = tile * CONFIG::kKeys + i;
    if (key < task.k_begin || key >= task.k_end) return nullptr;
    return At(task.kv, key, kv_head, 0, int64_t{args.head_dim} * CONFIG::kBytes);
  });
}

template <class GPU, class CONFIG>
ANNULUS_GPU const std::byte* ValueRow(const ForwardArgs& args, const ForwardTask& task,
                                      int32_t kv_head, int32_t key) {
  return At(task.kv, key, kv_head, task.value_offset, int64_t{args.value_dim} * CONFIG::kBytes);
}

template <class GPU, class CONFIG>
ANNULUS_GPU void LoadValues(GPU& gpu, const ForwardArgs& args, const ForwardTask& task,
                            int32_t kv_head, int32_t tile) {
  const RowLoader<GPU, CONFIG> loader{gpu, args, args.value_dim, task.v_whole};
  loader.Load(CONFIG::kValuesAt, CONFIG::kKeys, [&](int i) -> const std::byte* {
    const int32_t key = tile * CONFIG::kKeys + i;
    if (key < task.k_begin || key >= task.k_end) return nullptr;
    return ValueRow<GPU, CONFIG>(args, task, kv_head, key);
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_LOADS_H_
