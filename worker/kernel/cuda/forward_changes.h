#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_CHANGES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_CHANGES_H_

#include "worker/kernel/cuda/forward_products.h"
#include "worker/kernel/cuda/forward_tiles.h"
#include "worker/kernel/cuda/pair_changes.h"

namespace annulus::cuda {

// The bit of a thread's score [tile][i] in a word of those that are seen.
ANNULUS_GPU uint32_t ScoreBit(int tile, int i) { return uint32_t{1} << (tile * 4 + i); }

// What a job's ChangeRule does to the scores and weights that a thread has of a tile of keys.
template <class GPU, class CONFIG>
struct ScoreChanges {
  using Scores = typename TileProducts<GPU, CONFIG>::Scores;

  GPU& gpu;
  const ForwardArgs& args;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;
  PairChanges<GPU, CONFIG> pairs{gpu, args};

  // Changes what is in `seen`, and takes out of it what a bias or the bit mask hides.
  ANNULUS_GPU void Change(const KeyTile& at, Scores& scores, uint32_t& seen) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const SlotChange slot = pairs.ReadSlot(Slot(half));
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const uint32_t bit = ScoreBit(tile, 2 * half + c);
          if ((seen & bit) == 0) continue;
          float slope;
          if (!pairs.ChangeScore(slot, KeyRow(at, tile, c), scores[tile][2 * half + c], slope))
            seen &= ~bit;
        }
      }
    }
  }

  // Weights that dropout takes become 0.
  ANNULUS_GPU void Drop(const KeyTile& at, uint32_t seen, Scores& weights) const {
    if (args.change.drop_below == 0) return;
    for (int half = 0; half < 2; ++half) {
      const int slot = Slot(half);
      uint32_t row[3];
      pairs.Counters(slot, row);
      const int32_t first_key = pairs.Get(kSlotFirstKey, slot);
      uint32_t words[4], counter = ~uint32_t{0};  // No key has that one.
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int i = half == 0 ? c : 2 + c;
          if ((seen & ScoreBit(tile, i)) == 0) continue;
          const auto key = static_cast<uint32_t>(KeyRow(at, tile, c) - first_key);
          if (counter != key >> 2) {
            counter = key >> 2;
            Philox(counter, row, args.change.seed, words);
          }
          const bool dropped = pairs.Drops(words, key);
          if (dropped && half == 0) weights[tile][c] = 0;
          if (dropped && half == 1) weights[tile][2 + c] = 0;
        }
      }
    }
  }

 private:
  ANNULUS_GPU int Slot(int half) const { return warp * 16 + half * 8 + lane / 4; }
  ANNULUS_GPU int32_t KeyRow(const KeyTile& at, int tile, int c) const {
    const int key = tile * 8 + lane % 4 * 2 + c;
    return gpu.template LoadShared<int32_t>(CONFIG::kKeyRowsAt +
                                            (at.parity * CONFIG::kKeys + key) * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_CHANGES_H_
