#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_CONSUMER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_CONSUMER_H_

#include "worker/kernel/cuda/hopper_gradient_multiply.h"
#include "worker/kernel/cuda/hopper_gradient_producer.h"
#include "worker/kernel/cuda/hopper_gradient_sums.h"
#include "worker/kernel/cuda/hopper_values.h"

namespace annulus::cuda {

// A thread of a group that multiplies: brings the accumulators of its own rows up to date with all
// tasks of an item. While one group makes dS of scores, the other's products run.
template <class GPU, class CONFIG>
struct HopperGradientConsumer {
  using Rows = HopperOwnRows<GPU, CONFIG>;
  using Multiply = HopperGradientMultiply<GPU, CONFIG>;
  using Weights = HopperGradientWeights<GPU, CONFIG>;
  using Unsound = HopperUnsoundValues<GPU, CONFIG>;
  using Sums = HopperGradientSums<GPU, CONFIG>;
  using State = typename Sums::State;

  GPU& gpu;
  const GradientArgs& args;
  const HopperTiles<GPU>& tiles;
  int group = gpu.Uniform(gpu.Thread() / kGroupThreads - 1);

  ANNULUS_GPU void Run() const {
    typename CONFIG::Ring ring;
    State state;
    tiles.ForEach(
        [&](const HopperWork& work, int32_t) {
          gpu.SyncGroup(Barrier());  // The last task's rows are read no more.
          const Rows rows = RowsOf(work);
          rows.BeginLoad();
          Sums{gpu, args, rows}.Begin(state);
          rows.EndLoad();
        },
        [&](const HopperWork& work, int32_t tile, bool masked) {
          RunTile(work, tile, masked, ring, state);
          ring.Next();
        },
        [&](const HopperWork& work) {
          const Rows rows = RowsOf(work);
          Sums{gpu, args, rows}.End(state);
        });
  }

 private:
  ANNULUS_GPU int Barrier() const { return 1 + group; }  // 0 is the block's.
  ANNULUS_GPU Rows RowsOf(const HopperWork& work) const { return {gpu, args.forward, work, group}; }

  // What the thread's own rows see of a tile. Returns whether some slot does not see some key.
  ANNULUS_GPU bool Look(const HopperWork& work, int32_t tile, bool masked, int stage, State& state,
                        uint32_t (&seen)[2]) const {
    if constexpr (CONFIG::kOfQueries) {
      const HopperSlots<GPU, CONFIG> slots{gpu, args.forward, work.item};
      if (!masked) return false;
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half)
        seen[half] = slots.SeenOf(work.task, state.slots[half], tile);
      return true;
    } else {
      const HopperSlotInfo<GPU, CONFIG> info{gpu, args.forward};
      const bool hides = info.Masked(stage);
      const Rows rows = RowsOf(work);
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half) {
        if (hides) seen[half] = info.SeenBy(group * kGroupSlots + rows.OwnOf(half), stage);
        if (seen[half] != 0) state.touched |= 1u << half;
      }
      return hides;
    }
  }

  // Rows that are not finite, for own rows that see them; the others get what they get without.
  ANNULUS_GPU static void AddUnsound(const Unsound& rows, const typename Multiply::Packed& weights,
                                     const uint32_t (&seen)[2], float scale,
                                     typename Multiply::Sums& sums) {
    rows.Add(
        weights, seen, scale, [&](int row) { return rows.IsUnsound(row); }, sums);
  }
  // Both groups come here with the same tile, which the products of neither still read.
  ANNULUS_GPU void HideUnsound(const Unsound& first, const Unsound& second) const {
    gpu.SyncConsumers();
    for (int row = gpu.Thread() / 32 - kGroupThreads / 32; row < CONFIG::kOthers;
         row += kConsumerWarps) {
      if (first.IsUnsound(row)) first.Clear(row);
      if (!CONFIG::kOfQueries && second.IsUnsound(row)) second.Clear(row);
    }
    gpu.FenceAsync();
    gpu.SyncConsumers();
  }

  ANNULUS_GPU void RunTile(const HopperWork& work, int32_t tile, bool masked,
                           const typename CONFIG::Ring& ring, State& state) const {
    const Multiply multiply{gpu, group};
    const int stage = gpu.Uniform(ring.stage());
    gpu.AwaitBarrier(CONFIG::BarrierAt(kOthersCame, stage), ring.parity());
    gpu.SyncWarp();  // Products are of whole warps.
    typename Multiply::Scores scores, d_scores;
    multiply.BeginScores(false, stage, scores);
    multiply.BeginScores(true, stage, d_scores);
    uint32_t seen[2] = {~uint32_t{0}, ~uint32_t{0}};
    const bool hides = Look(work, tile, masked, stage, state, seen);
    const Unsound first{gpu, CONFIG::OthersAt(false, stage)};
    const Unsound second{gpu, CONFIG::OthersAt(true, stage)};
    bool any_unsound = false;
    if (hides) any_unsound = first.Any() || (!CONFIG::kOfQueries && second.Any());
    gpu.SyncWarp();
    const Weights weights{gpu, args.forward, state.lse, state.lse_rest, state.delta};
    gpu.template AwaitProductsBut<1>(scores);
    weights.Weigh(stage, scores);
    gpu.Finish({Weights::AllOf(scores), 0});  // Beside the other product.
    gpu.AwaitProducts(d_scores);
    weights.Differentiate(stage, scores, d_scores);
    if (hides) {
      Weights::Hide(seen, scores);
      Weights::Hide(seen, d_scores);
    }
    const bool by_numbers = hides && gpu.SyncGroupOr(Barrier(), any_unsound);
    gpu.SyncWarp();
    const float scale = args.forward.scale;
    typename Multiply::Packed packed, d_packed;
    if constexpr (!CONFIG::kOfQueries) Weights::Pack(scores, packed);
    Weights::Pack(d_scores, d_packed);
    if (by_numbers) {
      AddUnsound(first, d_packed, seen, scale, state.first);
      if constexpr (!CONFIG::kOfQueries) AddUnsound(second, packed, seen, 1.0f, state.second);
      HideUnsound(first, second);
    }
    if constexpr (!CONFIG::kOfQueries) multiply.AddSums(true, stage, 1.0f, packed, state.second);
    multiply.AddSums(false, stage, scale, d_packed, state.first);
    gpu.SyncWarp();
    if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(kOthersRead, stage));
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_CONSUMER_H_
