#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_AHEAD_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_AHEAD_H_

#include "worker/kernel/cuda/hopper_multiply.h"

namespace annulus::cuda {

// Tiles of which every slot that sees something sees all: while one has its softmax, the next one's
// scores and the last one's values are multiplied. To the bit what one tile after the other gives.
template <class GPU, class CONFIG>
struct HopperAhead {
  using State = HopperState<GPU, CONFIG>;
  using Softmax = HopperSoftmax<GPU, CONFIG>;
  using Multiply = HopperMultiply<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  const Multiply& multiply;

  // The next `tiles` of the ring: one at least. The group has the turn when it comes and goes.
  ANNULUS_GPU void Run(int32_t tiles, typename CONFIG::Ring& ring, State& state) const {
    typename Multiply::Scores scores;
    typename Multiply::Weights weights;
    float shrink[2];
    // What follows from it are numbers of the warp, from which products take their addresses.
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
  // From the weights of one tile to those of the next, with what brings sums to each one's maximum.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_AHEAD_H_
