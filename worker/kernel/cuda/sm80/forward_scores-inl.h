#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SCORES_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SCORES_INL_H_

#include <type_traits>

#include "worker/kernel/cuda/launch/gpu_code.h"
#include "worker/kernel/cuda/sm80/forward_config.h"
#include "worker/kernel/cuda/sm80/forward_tiles-inl.h"
#include "worker/kernel/cuda/sm80/gpu_products-inl.h"

// Scores of a tile, and the job's ChangeRule on scores and weights: bias, bit mask, soft cap,
// ALiBi, dropout. Included by forward_softmax-inl.h, nonfinite_values-inl.h and
// gradient_weights-inl.h. Start at TileProducts and ScoreChanges; PairChanges has the rule for one
// pair.
namespace annulus::cuda {

// The two products of a warp's 16 slots with a tile of keys (forward_config.h has the shapes).
template <class GPU, class CONFIG>
using TileProducts =
    std::conditional_t<CONFIG::kWide, FmaProducts<GPU, CONFIG>, MmaProducts<GPU, CONFIG>>;

// The data of a slot that the job's ChangeRule needs.
struct SlotChange {
  float slope, offset;
  int32_t position, first_key;
  uint64_t bias, bits;
};

// The job's ChangeRule for one score or weight. Requires: SlotFinder has found the slots
// (forward_tiles-inl.h). Keys are given by their packed rows.
template <class GPU, class CONFIG>
struct PairChanges {
  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU int32_t Get(int field, int slot) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  }
  ANNULUS_GPU SlotChange ReadSlot(int slot) const {
    return {BitsAs<float>(Get(kSlotSlope, slot)),
            BitsAs<float>(Get(kSlotOffset, slot)),
            Get(kSlotPosition, slot),
            Get(kSlotFirstKey, slot),
            gpu.template LoadShared<uint64_t>(SlotAt<CONFIG>(kSlotBias, 0) + slot * 8),
            gpu.template LoadShared<uint64_t>(SlotAt<CONFIG>(kSlotBits, 0) + slot * 8)};
  }

  // Changes a score. Returns false if the pair is hidden. `slope`: the derivative of the new score
  // by the old one.
  ANNULUS_GPU bool ChangeScore(const SlotChange& slot, int32_t key_row, float& score,
                               float& slope) const {
    const ChangeRule& change = args.change;
    const int64_t column = key_row - slot.first_key;
    slope = 1;
    if (slot.bits != 0) {
      const auto byte = gpu.template Load<uint8_t>(Pointer(slot.bits) + column / 8);
      if ((byte >> (column % 8) & 1) == 0) return false;
    }
    const float bias = slot.bias != 0 ? ReadBias(Pointer(slot.bias), column) : 0.0f;
    if (bias == -Infinity()) return false;
    score += slot.offset;
    if (change.cap != 0) {
      const float low = score * change.per_cap_low;
      const float t = Tanh<GPU>(GPU::Fma(score, change.per_cap_high, low));
      score = change.cap * t;
      slope = 1.0f - t * t;
    }
    if (change.alibi) {
      const int32_t apart = slot.position - key_row;
      score = GPU::Fma(-slot.slope, static_cast<float>(apart < 0 ? -apart : apart), score);
    }
    score += bias;
    return true;
  }

  // Words 1 to 3 of a slot's counters (attention/numerics/dropout.h).
  ANNULUS_GPU void Counters(int slot, uint32_t (&row)[3]) const {
    row[0] = static_cast<uint32_t>(Get(kSlotSequenceRow, slot));
    row[1] = static_cast<uint32_t>(Get(kSlotHead, slot)) + (uint32_t{1} << 31);
    row[2] = static_cast<uint32_t>(Get(kSlotSequence, slot));
  }
  // True if dropout drops the weight of key `key` of the slot's sequence. `words` are those of
  // counter key / 4.
  ANNULUS_GPU bool Drops(const uint32_t (&words)[4], uint32_t key) const {
    const uint32_t low = (key & 1) != 0 ? words[1] : words[0];
    const uint32_t high = (key & 1) != 0 ? words[3] : words[2];
    return ((key & 2) != 0 ? high : low) < args.change.drop_below;
  }

 private:
  ANNULUS_GPU float ReadBias(const std::byte* row, int64_t column) const {
    if (args.change.bias_type == Element::kFp32) return gpu.template Load<float>(row + column * 4);
    const auto bits = gpu.template Load<uint16_t>(row + column * 2);
    return args.change.bias_type == Element::kBf16 ? GPU::template ToFloat<Element::kBf16>(bits)
                                                   : GPU::template ToFloat<Element::kFp16>(bits);
  }
  ANNULUS_GPU static const std::byte* Pointer(uint64_t address) {
    return reinterpret_cast<const std::byte*>(address);
  }
};

// The bit of a thread's score [tile][i] in a word of visible scores.
ANNULUS_GPU uint32_t ScoreBit(int tile, int i) { return uint32_t{1} << (tile * 4 + i); }

// The job's ChangeRule for a thread's scores and weights of a tile of keys.
template <class GPU, class CONFIG>
struct ScoreChanges {
  using Scores = typename TileProducts<GPU, CONFIG>::Scores;

  GPU& gpu;
  const ForwardArgs& args;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;
  PairChanges<GPU, CONFIG> pairs{gpu, args};

  // Changes the scores in `seen`, and clears the bits of pairs that a bias or the bit mask hides.
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

  // Sets dropped weights to 0.
  ANNULUS_GPU void Drop(const KeyTile& at, uint32_t seen, Scores& weights) const {
    if (args.change.drop_below == 0) return;
    for (int half = 0; half < 2; ++half) {
      const int slot = Slot(half);
      uint32_t row[3];
      pairs.Counters(slot, row);
      const int32_t first_key = pairs.Get(kSlotFirstKey, slot);
      uint32_t words[4], counter = ~uint32_t{0};  // No key has this counter.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SCORES_INL_H_
