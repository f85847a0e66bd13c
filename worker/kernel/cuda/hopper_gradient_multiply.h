#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_MULTIPLY_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_MULTIPLY_H_

#include "worker/kernel/cuda/hopper_gradient_weights.h"

namespace annulus::cuda {

// Products of a consumer group with a tile that has come.
template <class GPU, class CONFIG>
struct HopperGradientMultiply {
  using Scores = float[CONFIG::kScores];
  using Packed = uint32_t[CONFIG::kSteps][4];
  using Sums = float[CONFIG::kSums];

  GPU& gpu;
  int group;

  // Begins scores = own rows · those that come by, of either input.
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

  // sums += scale · weights · rows that come by. A tile's sum is made apart, as in HopperMultiply.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_MULTIPLY_H_
