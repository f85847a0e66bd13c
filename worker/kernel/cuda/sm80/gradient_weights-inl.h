#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_WEIGHTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_WEIGHTS_INL_H_

#include "worker/kernel/cuda/sm80/forward_scores-inl.h"
#include "worker/kernel/cuda/sm80/gradient_rows-inl.h"

// Weights and dS of a part, and the gradient of the bias. Included by gradient_block-inl.h. Start
// at GradientWeights::Weigh and GradientBias::Add.
namespace annulus::cuda {

// A part of the current tile: rows [first, first + kPart) of it. Slots and keys count within their
// tiles.
struct GradientPart {
  int first = 0;
  bool masked = false;  // If true, masks say which pairs are visible; otherwise all are.
};

// Turns a thread's scores into weights, and dO·v into dS before the scale.
template <class GPU, class CONFIG>
struct GradientWeights {
  using Scores = typename GradientProducts<GPU, CONFIG>::Scores;

  GPU& gpu;
  const GradientArgs& args;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;
  PairChanges<GPU, CONFIG> pairs{gpu, args.forward};

  // Returns the visible pairs: bit tile · 4 + i. The others become 0.
  ANNULUS_GPU uint32_t Weigh(const GradientPart& part, Scores& scores, Scores& d_scores) const {
    uint32_t seen = 0;
    Dropping dropping[2];
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kPartTiles; ++tile) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int own = warp * 16 + i / 2 * 8 + lane / 4;
        const int other = part.first + tile * 8 + lane % 4 * 2 + i % 2;
        const Pair pair = {CONFIG::kOfQueries ? own : other, CONFIG::kOfQueries ? other : own};
        const bool sees =
            WeighPair(part, pair, scores[tile][i], d_scores[tile][i], dropping[i / 2]);
        if (sees) seen |= uint32_t{1} << (tile * 4 + i);
      }
    }
    return seen;
  }

 private:
  struct Pair {
    int slot, key;
  };
  // The LSE of a slot, and its rest times log2(e).
  struct Normaliser {
    float lse, rest;
  };
  // The words of a slot's counter: neighbouring keys share them.
  struct Dropping {
    int slot = -1;
    uint32_t counter = 0, words[4] = {};
  };

  ANNULUS_GPU bool WeighPair(const GradientPart& part, const Pair& pair, float& score,
                             float& d_score, Dropping& dropping) const {
    bool sees = true;
    if (part.masked) {
      const auto mask = gpu.template LoadShared<uint64_t>(CONFIG::kMasksAt + pair.slot * 8);
      sees = (mask >> pair.key & 1) != 0;
    }
    const Normaliser lse = {gpu.template LoadShared<float>(CONFIG::kLseAt + pair.slot * 4),
                            gpu.template LoadShared<float>(CONFIG::kLseRestAt + pair.slot * 4)};
    const auto delta = gpu.template LoadShared<float>(CONFIG::kDeltaAt + pair.slot * 4);
    score *= args.forward.scale;
    if constexpr (CONFIG::kChanges) {
      if (sees) return WeighChanged(pair, lse, delta, score, d_score, dropping);
      PutBias(pair, 0);
    } else {
      score = WeightOf(score, lse);
      d_score = score * (d_score - delta);
    }
    score = sees ? score : 0.0f;
    d_score = sees ? d_score : 0.0f;
    return sees;
  }

  ANNULUS_GPU bool WeighChanged(const Pair& pair, const Normaliser& lse, float delta, float& score,
                                float& d_score, Dropping& dropping) const {
    const auto key_row = gpu.template LoadShared<int32_t>(CONFIG::kKeyRowsAt + pair.key * 4);
    const SlotChange slot = pairs.ReadSlot(pair.slot);
    float slope;
    const bool sees = pairs.ChangeScore(slot, key_row, score, slope);
    const float weight = WeightOf(score, lse);
    float kept = 1;
    if (args.forward.change.drop_below != 0)
      kept = Kept(pair.slot, static_cast<uint32_t>(key_row - slot.first_key), dropping);
    const float gradient = weight * (d_score * kept - delta);
    PutBias(pair, sees ? gradient : 0.0f);
    score = sees ? weight * kept : 0.0f;
    d_score = sees ? gradient * slope : 0.0f;
    return sees;
  }

  // Puts dS of the bias for GradientBias.
  ANNULUS_GPU void PutBias(const Pair& pair, float gradient) const {
    if constexpr (CONFIG::kOfQueries) {
      if (!args.d_bias) return;
      const int column = pair.key % CONFIG::kPart;
      gpu.template StoreShared<float>(
          CONFIG::kWeightsAt + pair.slot * CONFIG::kWeightBytes + column * 4, gradient);
    }
  }

  ANNULUS_GPU float Kept(int slot, uint32_t key, Dropping& dropping) const {
    if (dropping.slot != slot || dropping.counter != key >> 2) {
      dropping.slot = slot;
      dropping.counter = key >> 2;
      uint32_t row[3];
      pairs.Counters(slot, row);
      Philox(dropping.counter, row, args.forward.change.seed, dropping.words);
    }
    return pairs.Drops(dropping.words, key) ? 0.0f : args.kept;
  }

  ANNULUS_GPU static float WeightOf(float score, const Normaliser& of) {
    return Exponential(GPU::Fma(score - of.lse, kLog2e, -of.rest));
  }
  // exp2(t); +infinity from 128 on. An LSE that is not the row's own may make t any number.
  ANNULUS_GPU static float Exponential(float t) {
    if constexpr (CONFIG::kWide) return Exp2<GPU>(t > 128.0f ? 128.0f : t);
    return GPU::Exp2Nearly(t);
  }
};

// Adds a part's dS of the bias (PutBias) to the gradient of the bias. If all heads share the bias,
// slots of one row are summed first, in order: a tile of a key/value head adds once.
template <class GPU, class CONFIG>
struct GradientBias {
  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;

  // All threads call it together, between barriers.
  ANNULUS_GPU void Add(const GradientPart& part) const {
    for (int i = gpu.Thread(); i < kTileSlots * CONFIG::kPart; i += kThreads)
      AddOne(i / CONFIG::kPart, part.first, i % CONFIG::kPart);
  }

 private:
  ANNULUS_GPU int32_t Get(int field, int slot) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  }
  ANNULUS_GPU bool Sees(int slot, int key) const {
    if (Get(kSlotRow, slot) < 0) return false;
    const auto mask = gpu.template LoadShared<uint64_t>(CONFIG::kMasksAt + slot * 8);
    return (mask >> key & 1) != 0;
  }

  // The first slot of a row that sees the key adds for all slots of the row.
  ANNULUS_GPU void AddOne(int slot, int first, int column) const {
    const int key = first + column;
    if (!Sees(slot, key)) return;
    const int32_t row = Get(kSlotRow, slot);
    float sum = 0;
    if (args.d_bias_per_head) {
      sum = Read(slot, column);
    } else {
      for (int before = slot - 1; before >= 0 && slot - before < args.forward.group; --before)
        if (Get(kSlotRow, before) == row && Sees(before, key)) return;
      for (int i = slot; i < kTileSlots && i - slot < args.forward.group; ++i)
        if (Get(kSlotRow, i) == row && Sees(i, key)) sum += Read(i, column);
    }
    const int32_t head = args.d_bias_per_head ? Get(kSlotHead, slot) : work.more.d_bias.head_begin;
    const auto key_row = gpu.template LoadShared<int32_t>(CONFIG::kKeyRowsAt + key * 4);
    const int64_t at = key_row - Get(kSlotFirstKey, slot);
    std::byte* to = At(work.more.d_bias, row, head, 0, args.d_bias_bytes) + at * 4;
    gpu.template Store<float>(to, gpu.template Load<float>(to) + sum);
  }
  ANNULUS_GPU float Read(int slot, int column) const {
    return gpu.template LoadShared<float>(CONFIG::kWeightsAt + slot * CONFIG::kWeightBytes +
                                          column * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_WEIGHTS_INL_H_
