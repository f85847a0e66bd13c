#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SOFTMAX_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SOFTMAX_INL_H_

#include "worker/kernel/cuda/sm90/hopper_slots-inl.h"

// Online softmax of the forward kernel for sm_90a. Included by hopper_mainloop-inl.h and
// hopper_epilogue-inl.h. Start at HopperSoftmax::Weigh.
namespace annulus::cuda {

// A consumer thread's state of its two slots: [0] is slot g, [1] is slot g + 8. In an array of
// scores or sums, element 4·j + 2·half + c is column 8·j + 2·(lane mod 4) + c of slot `half`. The
// state is that of the portable kernel (forward_softmax-inl.h), but scores and their maximum are
// powers of 2 here: times log2(e).
template <class GPU, class CONFIG>
struct HopperState {
  static constexpr int kScores = CONFIG::kKeys / 2, kSums = CONFIG::kDim / 2;
  static constexpr int kSteps = CONFIG::kKeys / 16;
  using Sums = float[kSums];

  float max[2], weight[2];
  Sums sums;
  uint32_t sees;  // Bits: slots that see a key of the task.
};

template <class GPU, class CONFIG>
struct HopperSoftmax {
  using State = HopperState<GPU, CONFIG>;
  using Scores = float[State::kScores];

  GPU& gpu;
  const ForwardArgs& args;

  // Turns scores into weights and updates the state. `shrink`: the rescale factor of earlier sums
  // of each slot. Both slots are processed together, each in two halves, so that no operation waits
  // long for the one before.
  ANNULUS_GPU void Weigh(bool masked, const uint32_t (&seen)[2], Scores& scores, State& state,
                         float (&shrink)[2]) const {
    float reference[2], weight[2];
    Scale(masked, seen, scores);
    TakeMaxima(scores, state, reference, shrink);
    WeighAll(reference, scores, weight);
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      state.weight[half] = state.weight[half] * shrink[half] + weight[half];
      NoteSeen(masked, seen[half], weight[half], state.max[half]);
    }
  }

  // Packs two weights to a word, as the left operand of a product: 16 slots of a warp × 16 keys for
  // each entry of `packed`.
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
  // Scales scores to powers of 2, and masks them.
  ANNULUS_GPU void Scale(bool masked, const uint32_t (&seen)[2], Scores& scores) const {
    ANNULUS_UNROLL
    for (int i = 0; i < State::kScores; ++i) {
      scores[i] *= args.power_scale;
      // Overwrites any value, NaN too.
      if (masked && (seen[i % 4 / 2] >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = -Infinity();
    }
  }

  // Updates the state's maxima with those of the scores.
  ANNULUS_GPU void TakeMaxima(const Scores& scores, State& state, float (&reference)[2],
                              float (&shrink)[2]) const {
    float top[4];
    ANNULUS_UNROLL
    for (int i = 0; i < 4; ++i) top[i] = GPU::Max(scores[i], -Infinity());  // NaN is no maximum.
    ANNULUS_UNROLL
    for (int i = 4; i < State::kScores; ++i) top[i % 4] = GPU::Max(top[i % 4], scores[i]);
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) top[half] = GPU::Max(top[2 * half], top[2 * half + 1]);
    ANNULUS_UNROLL
    for (int lanes = 1; lanes <= 2; ++lanes) {
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half)
        top[half] = GPU::Max(top[half], gpu.ShuffleXor(top[half], lanes));
    }
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float old = state.max[half];
      const float now = top[half] > old ? top[half] : old;  // NaN stays.
      // All scores were −infinity so far: any finite reference gives weights of 0.
      reference[half] = now == -Infinity() ? 0.0f : now;
      shrink[half] = Exp2<GPU>(old - reference[half]);
      state.max[half] = now;
    }
  }

  ANNULUS_GPU void WeighAll(const float (&reference)[2], Scores& scores, float (&weight)[2]) const {
    float sums[4] = {0, 0, 0, 0};
    ANNULUS_UNROLL
    for (int i = 0; i < State::kScores; ++i) {
      scores[i] = GPU::Exp2Nearly(scores[i] - reference[i % 4 / 2]);
      sums[i % 4] += scores[i];
    }
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) weight[half] = sums[2 * half] + sums[2 * half + 1];
    ANNULUS_UNROLL
    for (int lanes = 1; lanes <= 2; ++lanes) {
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half) weight[half] += gpu.ShuffleXor(weight[half], lanes);
    }
  }

  // A slot that has seen keys must differ from one that has seen none
  // (attention/numerics/partial.h).
  ANNULUS_GPU void NoteSeen(bool masked, uint32_t seen, float weight, float& max) const {
    uint32_t any = 1;
    if (masked) {
      any = seen != 0 ? 1 : 0;
      any |= gpu.ShuffleXor(any, 1);
      any |= gpu.ShuffleXor(any, 2);
    }
    if (max != -Infinity()) return;
    if (weight != weight)
      max = BitsAs<float>(0x7fc00000u);
    else if (any != 0)
      max = LowestFloat();
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SOFTMAX_INL_H_
