#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SOFTMAX_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SOFTMAX_H_

#include "worker/kernel/cuda/hopper_slots.h"

namespace annulus::cuda {

// What a consumer's thread has of its two slots: [0] g, [1] g + 8. Of an array of scores or sums
// element 4·j + 2·half + c is column 8·j + 2·(lane mod 4) + c of slot `half`. State is as the
// portable kernel keeps it (forward_softmax.h).
template <class GPU, class CONFIG>
struct HopperState {
  static constexpr int kScores = CONFIG::kKeys / 2, kSums = CONFIG::kDim / 2;
  static constexpr int kSteps = CONFIG::kKeys / 16;
  using Sums = float[kSums];

  float max[2], weight[2];
  Sums sums;
};

template <class GPU, class CONFIG>
struct HopperSoftmax {
  using State = HopperState<GPU, CONFIG>;
  using Scores = float[State::kScores];

  GPU& gpu;
  const ForwardArgs& args;

  // Scores become weights, and the state takes them in; `shrink` is what brings earlier sums of
  // each slot to the new maximum.
  ANNULUS_GPU void Weigh(bool masked, const uint32_t (&seen)[2], Scores& scores, State& state,
                         float (&shrink)[2]) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      ANNULUS_UNROLL
      for (int i = 0; i < State::kScores / 2; ++i) {
        float& score = scores[i / 2 * 4 + 2 * half + i % 2];
        score *= args.scale;
        // Whatever stood there.
        if (masked && (seen[half] >> i & 1) == 0) score = -Infinity();
      }
      WeighHalf(half, seen[half], scores, state, shrink[half]);
    }
  }

  // Two weights to a word, as the left side of a product: 16 slots of a warp × 16 keys for each of
  // `packed`.
  ANNULUS_GPU static void Pack(const Scores& weights, uint32_t (&packed)[State::kSteps][4]) {
    ANNULUS_UNROLL
    for (int step = 0; step < State::kSteps; ++step) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i)
        packed[step][i] = GPU::template Pack<CONFIG::kElement>(weights[step * 8 + 2 * i],
                                                               weights[step * 8 + 2 * i + 1]);
    }
  }

 private:
  ANNULUS_GPU void WeighHalf(int half, uint32_t seen, Scores& scores, State& state,
                             float& shrink) const {
    float top = -Infinity();
    ANNULUS_UNROLL
    for (int i = 0; i < State::kScores / 2; ++i) {
      const float score = scores[i / 2 * 4 + 2 * half + i % 2];
      top = score > top ? score : top;
    }
    top = Most(top, gpu.ShuffleXor(top, 1));
    top = Most(top, gpu.ShuffleXor(top, 2));
    const float old = state.max[half];
    const float now = top > old ? top : old;  // NaN stays.
    // Nothing but −infinity so far: any finite reference gives weights of 0.
    const float reference = now == -Infinity() ? 0.0f : now;
    float weight = 0;
    ANNULUS_UNROLL
    for (int i = 0; i < State::kScores / 2; ++i) {
      float& score = scores[i / 2 * 4 + 2 * half + i % 2];
      score = GPU::Exp2Nearly((score - reference) * kLog2e);
      weight += score;
    }
    weight += gpu.ShuffleXor(weight, 1);
    weight += gpu.ShuffleXor(weight, 2);
    shrink = Exp2<GPU>((old - reference) * kLog2e);
    state.weight[half] = state.weight[half] * shrink + weight;
    state.max[half] = now;
    // A slot that has seen keys must not look as if it had seen nothing (attention/partial.h).
    uint32_t notes = (seen != 0 ? 1 : 0) | (weight != weight ? 2 : 0);
    notes |= gpu.ShuffleXor(notes, 1);
    notes |= gpu.ShuffleXor(notes, 2);
    if (now != -Infinity() || notes == 0) return;
    state.max[half] = (notes & 2) != 0 ? BitsAs<float>(0x7fc00000u) : LowestFloat();
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SOFTMAX_H_
