#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_ROWS_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_ROWS_INL_H_

#include <type_traits>

#include "worker/kernel/cuda/sm80/forward_tiles-inl.h"
#include "worker/kernel/cuda/sm80/gpu_products-inl.h"
#include "worker/kernel/cuda/sm80/gradient_config.h"
#include "worker/kernel/cuda/sm80/nonfinite_values-inl.h"

// Inputs and sums of the gradient kernel: slots, loads of rows, accumulator rows, and rows with NaN
// or infinity. Included by gradient_block-inl.h and gradient_weights-inl.h. Start at GradientRows
// and GradientSums.
namespace annulus::cuda {

// The products of a warp's 16 own rows with a part (gradient_config.h), by those of attention.
template <class GPU, class CONFIG>
struct GradientProducts {
  template <uint32_t OWN_AT, uint32_t PART_AT>
  using Of =
      std::conditional_t<CONFIG::kWide, FmaProducts<GPU, ProductView<CONFIG, OWN_AT, PART_AT>>,
                         MmaProducts<GPU, ProductView<CONFIG, OWN_AT, PART_AT>>>;
  using First = Of<CONFIG::kOwnFirstAt, CONFIG::kFirstAt>;
  using Second = Of<CONFIG::kOwnSecondAt, CONFIG::kSecondAt>;
  using Scores = typename First::Scores;
  using Sums = typename First::Sums;
};

// A gradient task, and the key/value head of the thread's tile.
struct GradientWork {
  const ForwardTask& task;
  const GradientTask& more;
  int32_t kv_head;
};

// Like SlotFinder, but also puts the slot's LSE and delta. A slot with an LSE of −infinity sees no
// key.
template <class GPU, class CONFIG>
ANNULUS_GPU SlotSpans FindGradientSlot(GPU& gpu, const ForwardArgs& args, const GradientWork& work,
                                       int64_t tile) {
  const int slot = gpu.Thread();
  const SlotFinder<GPU, CONFIG> finder{gpu, args, work.task};
  SlotSpans spans = finder.Find(tile, work.kv_head, slot);
  const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
  float lse = 0, lse_rest = 0, delta = 0;
  if (row >= 0) {
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    lse = gpu.template Load<float>(At(work.task.q, row, head, work.more.lse_offset, 4));
    delta = gpu.template Load<float>(At(work.task.q, row, head, work.more.delta_offset, 4));
    if (work.more.lse_rest_offset >= 0)
      lse_rest = gpu.template Load<float>(At(work.task.q, row, head, work.more.lse_rest_offset, 4));
  }
  if (lse == -Infinity()) {
    lse = lse_rest = delta = 0;
    finder.PutHull(slot, -1, SlotSpans(), 0, true);
    spans = SlotSpans();
  }
  gpu.template StoreShared<float>(CONFIG::kLseAt + slot * 4, lse);
  gpu.template StoreShared<float>(CONFIG::kLseRestAt + slot * 4, lse_rest * kLog2e);
  gpu.template StoreShared<float>(CONFIG::kDeltaAt + slot * 4, delta);
  return spans;
}

// Addresses of rows of the four inputs, by slot of the current tile or by key, and their loads into
// shared memory. nullptr: zeros.
template <class GPU, class CONFIG>
struct GradientRows {
  GPU& gpu;
  const ForwardArgs& args;
  const GradientWork& work;

  ANNULUS_GPU const std::byte* Query(int slot) const { return OfSlot(slot, 0, args.head_dim); }
  ANNULUS_GPU const std::byte* DOut(int slot) const {
    return OfSlot(slot, work.more.d_out_offset, args.value_dim);
  }
  ANNULUS_GPU const std::byte* Key(int32_t key) const { return OfKey(key, 0, args.head_dim); }
  ANNULUS_GPU const std::byte* Value(int32_t key) const {
    return OfKey(key, work.task.value_offset, args.value_dim);
  }

  // Loads `rows` rows from slot or key `first` on.
  ANNULUS_GPU void LoadFirst(bool of_slots, uint32_t to, int rows, int32_t first) const {
    const RowLoader<GPU, CONFIG> loader{gpu, args, args.head_dim,
                                        of_slots ? work.task.q_whole : work.task.k_whole};
    loader.Load(to, rows, [&](int i) { return of_slots ? Query(first + i) : Key(first + i); });
  }
  ANNULUS_GPU void LoadSecond(bool of_slots, uint32_t to, int rows, int32_t first) const {
    const RowLoader<GPU, CONFIG> loader{gpu, args, args.value_dim,
                                        of_slots ? work.more.d_out_whole : work.task.v_whole};
    loader.Load(to, rows, [&](int i) { return of_slots ? DOut(first + i) : Value(first + i); });
  }

 private:
  ANNULUS_GPU const std::byte* OfSlot(int slot, int64_t offset, int32_t dim) const {
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(work.task.q, row, head, offset, int64_t{dim} * CONFIG::kBytes);
  }
  ANNULUS_GPU const std::byte* OfKey(int32_t key, int64_t offset, int32_t dim) const {
    if (key < work.task.k_begin || key >= work.task.k_end) return nullptr;
    return At(work.task.kv, key, work.kv_head, offset, int64_t{dim} * CONFIG::kBytes);
  }
};

// Bits 0 and 1: set if the thread's own row sees a key. `seen` comes from GradientWeights.
ANNULUS_GPU uint32_t OwnThatSee(uint32_t seen) {
  constexpr uint32_t kFirst = 0x33333333u;  // The first row's bits of each tile's four.
  return ((seen & kFirst) != 0 ? 1 : 0) | ((seen & ~kFirst) != 0 ? 2 : 0);
}

// Loads and stores the sums of a thread's two own rows. `row_of` returns the address of row 0 and
// of row 1; nullptr: there is none, or it must not be touched.
template <class GPU, class CONFIG>
struct GradientSums {
  using Sums = typename GradientProducts<GPU, CONFIG>::Sums;

  GPU& gpu;
  int32_t dim;
  int lane = gpu.Thread() % 32;

  ANNULUS_GPU static void Clear(Sums& sums) {
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kColumnTiles * 4; ++i) sums[i / 4][i % 4] = 0;
  }
  template <class ROW_OF>
  ANNULUS_GPU void Load(const ROW_OF& row_of, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::byte* from = row_of(half);
      if (from == nullptr) continue;
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kColumnTiles * 2; ++i) {
        const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column < dim)
          sums[i / 2][2 * half + i % 2] = gpu.template Load<float>(from + column * 4);
      }
    }
  }
  template <class ROW_OF>
  ANNULUS_GPU void Store(const ROW_OF& row_of, const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::byte* to = row_of(half);
      if (to == nullptr) continue;
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kColumnTiles * 2; ++i) {
        const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (column < dim) gpu.template Store<float>(to + column * 4, sums[i / 2][2 * half + i % 2]);
      }
    }
  }
};

// Like NonfiniteValues, for rows of a part with infinity or NaN that some own rows do not see.
// PRODUCT has the part, `dim` columns of it.
template <class GPU, class CONFIG, class PRODUCT>
struct NonfiniteRows {
  using Scores = typename PRODUCT::Scores;
  using Sums = typename PRODUCT::Sums;

  GPU& gpu;
  const ForwardArgs& args;
  const PRODUCT& product;
  uint32_t at;
  int32_t dim;
  int lane = gpu.Thread() % 32;

  // Sets such rows to 0 in shared memory. Returns false if there are none.
  ANNULUS_GPU bool Hide() const {
    constexpr int kThreadsOfRow = kThreads / CONFIG::kPart;
    const int row = gpu.Thread() / kThreadsOfRow, first = gpu.Thread() % kThreadsOfRow;
    const uint32_t row_at = at + row * CONFIG::kRowBytes;
    const int chunks = Columns(dim) * CONFIG::kBytes / 16;
    bool nonfinite = false;
    ANNULUS_NO_UNROLL
    for (int chunk = first; chunk < chunks; chunk += kThreadsOfRow)
      nonfinite |= IsNonfinite<CONFIG>(gpu.template LoadShared<Chunk>(row_at + chunk * 16));
    if (!gpu.SyncOr(nonfinite)) return false;
    int any = nonfinite ? 1 : 0;
    for (int lanes = 1; lanes < kThreadsOfRow; lanes *= 2) any |= gpu.ShuffleXor(any, lanes);
    if (first == 0) gpu.template StoreShared<int32_t>(CONFIG::kNonfiniteAt + row * 4, any);
    if (any != 0) Clear(row, first, kThreadsOfRow);
    gpu.Sync();
    return true;
  }

  // Adds the hidden rows to the own rows that see them, with one product for each hidden row.
  // `row_of` returns its address; `add` as for the product.
  template <class ROW_OF, class ADD>
  ANNULUS_GPU void Add(const Scores& weights, uint32_t seen, const ROW_OF& row_of, const ADD& add,
                       Sums& sums) const {
    ANNULUS_NO_UNROLL
    for (int row = 0; row < CONFIG::kPart; ++row) {
      if (gpu.template LoadShared<int32_t>(CONFIG::kNonfiniteAt + row * 4) == 0) continue;
      const RowLoader<GPU, CONFIG> loader{gpu, args, dim, /*whole=*/false};
      loader.Load(at + row * CONFIG::kRowBytes, 1, [&](int) { return row_of(row); });
      gpu.Sync();
      Scores alone;
      uint32_t own = 0;  // Bits of the thread's two own rows that see it.
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kPartTiles * 4; ++i) {
        const bool mine = i / 4 * 8 + lane % 4 * 2 + i % 2 == row;
        alone[i / 4][i % 4] = mine ? weights[i / 4][i % 4] : 0.0f;
        own |= mine ? (seen >> i & 1) << (i % 4 / 2) : 0;
      }
      own |= gpu.ShuffleXor(own, 1);
      own |= gpu.ShuffleXor(own, 2);
      product.Accumulate(
          alone,
          [&](float sum, int half, float more) {
            return (own >> half & 1) != 0 ? add(sum, half, more) : sum;
          },
          sums);
      gpu.Sync();
      Clear(row, gpu.Thread(), kThreads);
      gpu.Sync();
    }
  }

 private:
  ANNULUS_GPU void Clear(int row, int first, int threads) const {
    const int chunks = Columns(dim) * CONFIG::kBytes / 16;
    ANNULUS_NO_UNROLL
    for (int chunk = first; chunk < chunks; chunk += threads)
      gpu.template StoreShared<Chunk>(at + row * CONFIG::kRowBytes + chunk * 16,
                                      Chunk{{0, 0, 0, 0}});
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_ROWS_INL_H_
