#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_MAINLOOP_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_MAINLOOP_INL_H_

#include "worker/kernel/cuda/sm90/hopper_softmax-inl.h"

// The mainloop of a consumer in the forward kernel for sm_90a. Included by hopper_block-inl.h.
// Start at HopperMultiply (products of one tile) and HopperAhead::Run (overlapped tiles without
// masks).
namespace annulus::cuda {

// Products of a consumer group with a tile of the ring. A product that was begun is complete after
// a wait for it (AwaitProductsBut).
template <class GPU, class CONFIG>
struct HopperMultiply {
  using State = HopperState<GPU, CONFIG>;
  using Scores = float[State::kScores];
  using Weights = uint32_t[State::kSteps][4];

  GPU& gpu;
  int group, query_stage;

  // Begins scores = queries · keys, unscaled.
  ANNULUS_GPU void BeginScores(const typename CONFIG::Ring& ring, Scores& scores) const {
    gpu.AwaitBarrier(CONFIG::BarrierAt(kKeysCame, ring.stage()), ring.parity());
    gpu.SyncWarp();  // A warp starts products as a whole.
    const uint32_t queries_at = CONFIG::QueriesAt(query_stage, group);
    gpu.FenceProducts(scores);
    ANNULUS_UNROLL
    for (int column = 0; column < CONFIG::kDim; column += 16) {
      gpu.template MultiplyRows<CONFIG::kElement, CONFIG::kKeys>(
          gpu.Descriptor(AlongRows(queries_at, CONFIG::kQueryPanelBytes, column)),
          gpu.Descriptor(AlongRows(CONFIG::KeysAt(ring.stage()), CONFIG::kKeyPanelBytes, column)),
          scores, column != 0);
    }
    gpu.CommitProducts();
  }

  // Begins more = weights · values, by slot. A tile's sum is made separately: tensor cores truncate
  // when they add to a sum, and over many keys that would add up.
  ANNULUS_GPU void BeginSums(const typename CONFIG::Ring& ring, Weights& weights,
                             typename State::Sums& more) const {
    gpu.AwaitBarrier(CONFIG::BarrierAt(kValuesCame, ring.stage()), ring.parity());
    gpu.SyncWarp();
    MultiplyValues<CONFIG::kDim>(CONFIG::ValuesAt(ring.stage()), weights, more);
  }

  // sums = shrink · sums + more, for COUNT sums from `first` on.
  template <int COUNT>
  ANNULUS_GPU static void Join(const float (&more)[COUNT], const float (&shrink)[2], int first,
                               State& state) {
    ANNULUS_UNROLL
    for (int i = 0; i < COUNT; ++i)
      state.sums[first + i] = GPU::Fma(state.sums[first + i], shrink[i % 4 / 2], more[i]);
  }

  // sums = shrink · sums + weights · values, for values that have arrived.
  ANNULUS_GPU void AddSums(const typename CONFIG::Ring& ring, Weights& weights,
                           const float (&shrink)[2], State& state) const {
    constexpr int kPanelsOfPart = CONFIG::kPart / kPanelColumns, kSumsOfPart = CONFIG::kPart / 2;
    gpu.SyncWarp();
    ANNULUS_UNROLL
    for (int part = 0; part < CONFIG::kParts; ++part) {
      float more[kSumsOfPart];
      MultiplyValues<CONFIG::kPart>(
          CONFIG::ValuesAt(ring.stage()) + part * kPanelsOfPart * CONFIG::kKeyPanelBytes, weights,
          more);
      gpu.AwaitProducts(more, weights);
      Join(more, shrink, part * kSumsOfPart, state);
    }
  }

  // Releases a stage of a ring that the warp has read.
  ANNULUS_GPU void Release(HopperBarrier barrier, int stage) const {
    gpu.SyncWarp();
    if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(barrier, stage));
  }

 private:
  template <int COLUMNS>
  ANNULUS_GPU void MultiplyValues(uint32_t at, Weights& weights, float (&more)[COLUMNS / 2]) const {
    gpu.FenceProducts(weights, more);
    ANNULUS_UNROLL
    for (int step = 0; step < State::kSteps; ++step)
      gpu.template MultiplyColumns<CONFIG::kElement, COLUMNS>(
          weights[step], gpu.Descriptor(AcrossRows(at, CONFIG::kKeyPanelBytes, step * 16)), more,
          step != 0);
    gpu.CommitProducts();
  }
};

// Overlapped processing of tiles in which every slot that sees a key sees all. During the softmax
// of one tile, the next tile's scores and the last tile's values are multiplied. The bits are those
// of one tile after the other.
template <class GPU, class CONFIG>
struct HopperAhead {
  using State = HopperState<GPU, CONFIG>;
  using Softmax = HopperSoftmax<GPU, CONFIG>;
  using Multiply = HopperMultiply<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  const Multiply& multiply;

  // Processes the next `tiles` of the ring, at least one. The group has the turn on entry and on
  // exit.
  ANNULUS_GPU void Run(int32_t tiles, typename CONFIG::Ring& ring, State& state) const {
    typename Multiply::Scores scores;
    typename Multiply::Weights weights;
    float shrink[2];
    // Values derived from it are uniform in the warp: products take their addresses from such
    // values.
    ring.state = gpu.Uniform(ring.state);
    multiply.BeginScores(ring, scores);
    gpu.PassTurn(multiply.group);
    gpu.AwaitProducts(scores);
    multiply.Release(kKeysRead, ring.stage());
    Weigh(scores, state, shrink);
    Softmax::Pack(scores, weights);
    for (int32_t left = gpu.Uniform(tiles - 1); left > 0; --left)
      RunTile(scores, weights, shrink, ring, state);
    typename State::Sums more;
    gpu.AwaitTurn(multiply.group);
    multiply.BeginSums(ring, weights, more);
    gpu.AwaitProducts(weights, more);
    multiply.Release(kValuesRead, ring.stage());
    ring.Next();
    Multiply::Join(more, shrink, 0, state);
  }

 private:
  // Advances from the weights of one tile to those of the next. `shrink`: the rescale factor of
  // each tile's sums.
  ANNULUS_GPU void RunTile(typename Multiply::Scores& scores, typename Multiply::Weights& weights,
                           float (&shrink)[2], typename CONFIG::Ring& ring, State& state) const {
    typename CONFIG::Ring next = ring;
    next.Next();
    typename State::Sums more;
    gpu.AwaitTurn(multiply.group);
    multiply.BeginScores(next, scores);
    multiply.BeginSums(ring, weights, more);
    gpu.PassTurn(multiply.group);
    gpu.template AwaitProductsBut<1>(scores);
    multiply.Release(kKeysRead, next.stage());
    float next_shrink[2];
    Weigh(scores, state, next_shrink);
    gpu.Finish(state.weight);
    gpu.AwaitProducts(weights, more);
    multiply.Release(kValuesRead, ring.stage());
    Multiply::Join(more, shrink, 0, state);
    Softmax::Pack(scores, weights);
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) shrink[half] = next_shrink[half];
    ring = next;
  }

  ANNULUS_GPU void Weigh(typename Multiply::Scores& scores, State& state,
                         float (&shrink)[2]) const {
    const Softmax softmax{gpu, args};
    const uint32_t all[2] = {~uint32_t{0}, ~uint32_t{0}};
    softmax.Weigh(false, all, scores, state, shrink);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_MAINLOOP_INL_H_
