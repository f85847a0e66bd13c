#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PARTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PARTS_H_

#include "worker/kernel/cuda/gradient_bias.h"
#include "worker/kernel/cuda/gradient_weights.h"
#include "worker/kernel/cuda/unsound_rows.h"

namespace annulus::cuda {

// What a part of the tile that comes by gives to the sums of a block's own rows. Ends with a
// barrier: then everything in shared memory but the own rows may be overwritten.
template <class GPU, class CONFIG>
struct GradientParts {
  using Products = GradientProducts<GPU, CONFIG>;
  using Scores = typename Products::Scores;
  using Sums = typename Products::Sums;
  static constexpr bool kOfQueries = CONFIG::kOfQueries;

  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;
  GradientRows<GPU, CONFIG> rows{gpu, args.forward, work};

  // Own rows; they are there after the next part's first barrier.
  ANNULUS_GPU void LoadOwn(int32_t first) const {
    rows.LoadFirst(kOfQueries, CONFIG::kOwnFirstAt, kTileSlots, first);
    if constexpr (CONFIG::kSide != GradientSide::kValues)
      rows.LoadSecond(kOfQueries, CONFIG::kOwnSecondAt, kTileSlots, first);
    gpu.CommitCopies();
  }

  // `first`: the part's first key, or slot of its tile. `d_first` takes dS times what scores are
  // made of, `d_second` weights times dO; of queries, and of keys alone, only the first is used.
  // Returns which of the thread's two own rows see something: bits 0 and 1.
  ANNULUS_GPU uint32_t Run(const GradientPart& part, int32_t first, Sums& d_first,
                           Sums& d_second) const {
    rows.LoadFirst(!kOfQueries, CONFIG::kFirstAt, CONFIG::kPart, first);
    if constexpr (!CONFIG::kOneBuffer)
      rows.LoadSecond(!kOfQueries, CONFIG::kSecondAt, CONFIG::kPart, first);
    Arrive();
    Scores scores, d_scores;
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kPartTiles * 4; ++i)
      scores[i / 4][i % 4] = d_scores[i / 4][i % 4] = 0;
    const typename Products::First by_first{gpu, args.forward.head_dim, args.forward.head_dim};
    const typename Products::Second by_second{gpu, args.forward.value_dim, args.forward.value_dim};
    by_first.Score(scores);
    if constexpr (CONFIG::kOneBuffer) {
      gpu.Sync();
      rows.LoadSecond(!kOfQueries, CONFIG::kSecondAt, CONFIG::kPart, first);
      Arrive();
    }
    if constexpr (CONFIG::kSide != GradientSide::kValues) by_second.Score(d_scores);
    const GradientWeights<GPU, CONFIG> weights{gpu, args};
    const uint32_t seen = weights.Weigh(part, scores, d_scores);
    if constexpr (kOfQueries && CONFIG::kChanges) {
      if (args.d_bias) {
        gpu.Sync();
        GradientBias<GPU, CONFIG>{gpu, args, work}.Add(part);
        gpu.Sync();
      }
    }
    if constexpr (CONFIG::kHasValues) AddSecond(part, by_second, scores, seen, first, d_second);
    if constexpr (CONFIG::kSide != GradientSide::kValues) {
      if constexpr (CONFIG::kOneBuffer) {
        gpu.Sync();
        rows.LoadFirst(!kOfQueries, CONFIG::kFirstAt, CONFIG::kPart, first);
        Arrive();
      }
      AddFirst(part, by_first, d_scores, seen, first, d_first);
    }
    gpu.Sync();
    return OwnThatSee(seen);
  }

 private:
  ANNULUS_GPU void Arrive() const {
    gpu.CommitCopies();
    gpu.template WaitCopies<0>();
    gpu.Sync();
  }

  ANNULUS_GPU void AddFirst(const GradientPart& part, const typename Products::First& product,
                            const Scores& d_scores, uint32_t seen, int32_t first,
                            Sums& sums) const {
    const UnsoundRows<GPU, CONFIG, typename Products::First> unsound{
        gpu, args.forward, product, CONFIG::kFirstAt, args.forward.head_dim};
    const float scale = args.forward.scale;
    const auto add = [&](float sum, int, float more) { return GPU::Fma(scale, more, sum); };
    if (part.masked && unsound.Hide()) {
      unsound.Add(
          d_scores, seen,
          [&](int i) { return kOfQueries ? rows.Key(first + i) : rows.Query(first + i); }, add,
          sums);
    }
    product.Accumulate(d_scores, add, sums);
  }

  ANNULUS_GPU void AddSecond(const GradientPart& part, const typename Products::Second& product,
                             const Scores& weights, uint32_t seen, int32_t first,
                             Sums& sums) const {
    const UnsoundRows<GPU, CONFIG, typename Products::Second> unsound{
        gpu, args.forward, product, CONFIG::kSecondAt, args.forward.value_dim};
    const auto add = [](float sum, int, float more) { return sum + more; };
    if (part.masked && unsound.Hide())
      unsound.Add(
          weights, seen, [&](int i) { return rows.DOut(first + i); }, add, sums);
    product.Accumulate(weights, add, sums);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_PARTS_H_
