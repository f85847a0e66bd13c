#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_MAINLOOP_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_MAINLOOP_INL_H_

#include "worker/kernel/cuda/sm90/hopper_gradient_rows-inl.h"

// The mainloop parts of a consumer in the gradient kernel for sm_90a: weights and dS, and matrix
// products. Included by hopper_gradient_block-inl.h. Start at HopperGradientWeights and
// HopperGradientMultiply.
namespace annulus::cuda {

// A thread's pairs of a tile. In an array of scores, element 4·j + 2·half + c is row 8·j + 2·(lane
// mod 4) + c of the streamed tile and the thread's own row `half`.
template <class GPU, class CONFIG>
struct HopperGradientWeights {
  using Scores = float[CONFIG::kScores];
  using Packed = uint32_t[CONFIG::kSteps][4];

  GPU& gpu;
  const ForwardArgs& args;
  // For the thread's two own slots. If slots are streamed, the stage has these values instead.
  const float (&own_lse)[2], (&own_lse_rest)[2], (&own_delta)[2];

  // Turns unscaled scores into weights. An LSE is a power of 2 here: it is multiplied by log2(e).
  ANNULUS_GPU void Weigh(int stage, Scores& scores) const {
    Each(CONFIG::LseAt(stage), own_lse,
         [&](int i, float lse) { scores[i] = GPU::Fma(scores[i], args.power_scale, -lse); });
    Each(CONFIG::LseRestAt(stage), own_lse_rest,
         [&](int i, float rest) { scores[i] = GPU::Exp2Nearly(scores[i] - rest); });
  }
  // Turns dO·v into dS, before the scale.
  ANNULUS_GPU void Differentiate(int stage, const Scores& weights, Scores& d_scores) const {
    Each(CONFIG::DeltaAt(stage), own_delta,
         [&](int i, float delta) { d_scores[i] = weights[i] * (d_scores[i] - delta); });
  }
  // Sets masked pairs to 0.
  ANNULUS_GPU static void Hide(const uint32_t (&seen)[2], Scores& scores) {
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kScores; ++i)
      if ((seen[i % 4 / 2] >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = 0;
  }
  // A word that depends on all weights, for Finish. Weights have no sign, so it is never the value
  // that Finish branches on.
  ANNULUS_GPU static float AllOf(const Scores& weights) {
    uint32_t all = 0;
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kScores; ++i) all |= BitsAs<uint32_t>(weights[i]);
    return BitsAs<float>(all);
  }

  // Packs two to a word, as the left operand of a product.
  ANNULUS_GPU static void Pack(const Scores& values, Packed& packed) {
    ANNULUS_UNROLL
    for (int step = 0; step < CONFIG::kSteps; ++step) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i)
        packed[step][i] = GPU::template Pack<CONFIG::kElement>(values[step * 8 + 2 * i],
                                                               values[step * 8 + 2 * i + 1]);
    }
  }

 private:
  // Calls act(element, the value of its slot).
  template <class ACT>
  ANNULUS_GPU void Each(uint32_t at, const float (&own)[2], const ACT& act) const {
    const int first = gpu.Thread() % 4 * 2;
    ANNULUS_UNROLL
    for (int j = 0; j < CONFIG::kScores / 4; ++j) {
      TwoFloats two = {{0, 0}};
      if constexpr (!CONFIG::kOfQueries)
        two = gpu.template LoadShared<TwoFloats>(at + (j * 8 + first) * 4);
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i)
        act(4 * j + i, CONFIG::kOfQueries ? own[i / 2] : two.value[i % 2]);
    }
  }
};

// Products of a consumer group with a tile that has arrived.
template <class GPU, class CONFIG>
struct HopperGradientMultiply {
  using Scores = float[CONFIG::kScores];
  using Packed = uint32_t[CONFIG::kSteps][4];
  using Sums = float[CONFIG::kSums];

  GPU& gpu;
  int group;

  // Begins scores = own rows · streamed rows, of either input.
  ANNULUS_GPU void BeginScores(bool second, int stage, Scores& scores) const {
    const uint32_t own_at = CONFIG::OwnAt(second, group), at = CONFIG::OthersAt(second, stage);
    gpu.FenceProducts(scores);
    ANNULUS_UNROLL
    for (int column = 0; column < CONFIG::kDim; column += 16) {
      gpu.template MultiplyRows<CONFIG::kElement, CONFIG::kOthers>(
          gpu.Descriptor(AlongRows(own_at, CONFIG::kOwnPanelBytes, column)),
          gpu.Descriptor(AlongRows(at, CONFIG::kKeyPanelBytes, column)), scores, column != 0);
    }
    gpu.CommitProducts();
  }

  // sums += scale · weights · streamed rows. A tile's sum is made separately, as in HopperMultiply.
  ANNULUS_GPU void AddSums(bool second, int stage, float scale, Packed& weights, Sums& sums) const {
    constexpr int kPanelsOfPart = CONFIG::kPart / kPanelColumns, kSumsOfPart = CONFIG::kPart / 2;
    ANNULUS_UNROLL
    for (int part = 0; part < CONFIG::kParts; ++part) {
      const uint32_t at =
          CONFIG::OthersAt(second, stage) + part * kPanelsOfPart * CONFIG::kKeyPanelBytes;
      float more[kSumsOfPart];
      gpu.FenceProducts(weights, more);
      ANNULUS_UNROLL
      for (int step = 0; step < CONFIG::kSteps; ++step)
        gpu.template MultiplyColumns<CONFIG::kElement, CONFIG::kPart>(
            weights[step], gpu.Descriptor(AcrossRows(at, CONFIG::kKeyPanelBytes, step * 16)), more,
            step != 0);
      gpu.CommitProducts();
      gpu.AwaitProducts(more, weights);
      ANNULUS_UNROLL
      for (int i = 0; i < kSumsOfPart; ++i) {
        float& sum = sums[part * kSumsOfPart + i];
        sum = GPU::Fma(scale, more[i], sum);
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_MAINLOOP_INL_H_
