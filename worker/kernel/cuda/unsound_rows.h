#ifndef ANNULUS_WORKER_KERNEL_CUDA_UNSOUND_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_UNSOUND_ROWS_H_

#include "worker/kernel/cuda/gradient_rows.h"
#include "worker/kernel/cuda/unsound_values.h"

namespace annulus::cuda {

// As UnsoundValues: rows of a part with infinite values or NaN, that some of a block's own rows do
// not see. PRODUCT has the part, `dim` columns of it.
template <class GPU, class CONFIG, class PRODUCT>
struct UnsoundRows {
  using Scores = typename PRODUCT::Scores;
  using Sums = typename PRODUCT::Sums;

  GPU& gpu;
  const ForwardArgs& args;
  const PRODUCT& product;
  uint32_t at;
  int32_t dim;
  int lane = gpu.Thread() % 32;

  // Rows that have some become 0 in shared memory. False: there are none.
  ANNULUS_GPU bool Hide() const {
    constexpr int kThreadsOfRow = kThreads / CONFIG::kPart;
    const int row = gpu.Thread() / kThreadsOfRow, first = gpu.Thread() % kThreadsOfRow;
    const uint32_t row_at = at + row * CONFIG::kRowBytes;
    const int chunks = Columns(dim) * CONFIG::kBytes / 16;
    bool unsound = false;
    ANNULUS_NO_UNROLL
    for (int chunk = first; chunk < chunks; chunk += kThreadsOfRow)
      unsound |= IsUnsound<CONFIG>(gpu.template LoadShared<Chunk>(row_at + chunk * 16));
    if (!gpu.SyncOr(unsound)) return false;
    int any = unsound ? 1 : 0;
    for (int lanes = 1; lanes < kThreadsOfRow; lanes *= 2) any |= gpu.ShuffleXor(any, lanes);
    if (first == 0) gpu.template StoreShared<int32_t>(CONFIG::kUnsoundAt + row * 4, any);
    if (any != 0) Clear(row, first, kThreadsOfRow);
    gpu.Sync();
    return true;
  }

  // Adds what Hide took away to the rows that see it, by a product of each hidden row alone.
  // `row_of` gives its address; `add` as for the product.
  template <class ROW_OF, class ADD>
  ANNULUS_GPU void Add(const Scores& weights, uint32_t seen, const ROW_OF& row_of, const ADD& add,
                       Sums& sums) const {
    ANNULUS_NO_UNROLL
    for (int row = 0; row < CONFIG::kPart; ++row) {
      if (gpu.template LoadShared<int32_t>(CONFIG::kUnsoundAt + row * 4) == 0) continue;
      const RowLoader<GPU, CONFIG> loader{gpu, args, dim, /*whole=*/false};
      loader.Load(at + row * CONFIG::kRowBytes, 1, [&](int) { return row_of(row); });
      gpu.Sync();
      Scores alone;
      uint32_t own = 0;  // Which of the thread's two own rows see it.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_UNSOUND_ROWS_H_
