#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_BLOCK_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_BLOCK_INL_H_

#include "worker/kernel/cuda/sm90/hopper_epilogue-inl.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_mainloop-inl.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_producer-inl.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_rows-inl.h"

// The gradient kernel for sm_90a: one producer warp group, two consumer warp groups. Included by
// hopper_gradient_kernel.cuh, and by the tests' emulator. Start at HopperGradientBlock::Run and
// HopperGradientConsumer; the parts are in hopper_gradient_producer-inl.h,
// hopper_gradient_mainloop-inl.h and hopper_gradient_rows-inl.h.
namespace annulus::cuda {

// A consumer thread's state of its own rows while a task's tiles are streamed past.
template <class GPU, class CONFIG>
struct HopperGradientSums {
  using Rows = HopperOwnRows<GPU, CONFIG>;

  struct State {
    // dQ; or dK and dV.
    typename Rows::Sums first, second;
    float lse[2], lse_rest[2], delta[2];  // Values of own slots.
    HopperSlot slots[2];                  // With the spans that they have yet to see.
    uint32_t touched;                     // Bits: own rows that see something.
  };

  GPU& gpu;
  const GradientArgs& args;
  const Rows& rows;

  ANNULUS_GPU void Begin(State& state) const {
    state.touched = 0;
    if constexpr (CONFIG::kOfQueries) {
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half) BeginSlot(half, state);
      rows.LoadSums(rows.work.more.d_q, 0, args.forward.head_dim, state.first);
    } else {
      rows.LoadSums(rows.work.more.d_kv, 0, args.forward.head_dim, state.first);
      rows.LoadSums(rows.work.more.d_kv, rows.work.more.d_value_offset, args.forward.value_dim,
                    state.second);
    }
  }

  ANNULUS_GPU void End(State& state) const {
    if constexpr (CONFIG::kOfQueries) {
      rows.StoreSums(rows.work.more.d_q, 0, args.forward.head_dim, state.touched, state.first);
    } else {
      uint32_t touched = state.touched;
      touched |= gpu.ShuffleXor(touched, 1);
      touched |= gpu.ShuffleXor(touched, 2);
      rows.StoreSums(rows.work.more.d_kv, 0, args.forward.head_dim, touched, state.first);
      rows.StoreSums(rows.work.more.d_kv, rows.work.more.d_value_offset, args.forward.value_dim,
                     touched, state.second);
    }
    gpu.SyncWarp();  // The next task may use the same rows, with other lanes' values.
  }

 private:
  ANNULUS_GPU void BeginSlot(int half, State& state) const {
    state.slots[half] = rows.slots.Find(rows.work.task, half);
    state.lse[half] = state.lse_rest[half] = state.delta[half] = 0;
    const auto place = rows.PlaceOf(rows.OwnOf(half));
    if (state.slots[half].row < 0) return;
    const auto number = [&](int64_t offset) {
      return gpu.template Load<float>(At(rows.work.task.q, place.row, place.head, offset, 4));
    };
    const float lse = number(rows.work.more.lse_offset);
    if (lse == -Infinity()) return;
    const int64_t rest_offset = rows.work.more.lse_rest_offset;
    const auto power = MakePowerOf2Lse<GPU>(lse, rest_offset < 0 ? 0.0f : number(rest_offset));
    state.lse[half] = power.lse;
    state.lse_rest[half] = power.rest;
    state.delta[half] = number(rows.work.more.delta_offset);
    state.touched |= 1u << half;
  }
};

// A thread of a consumer group: brings the accumulators of its own rows up to date with all tasks
// of an item. While one group turns scores into dS, the other's products run.
template <class GPU, class CONFIG>
struct HopperGradientConsumer {
  using Rows = HopperOwnRows<GPU, CONFIG>;
  using Multiply = HopperGradientMultiply<GPU, CONFIG>;
  using Weights = HopperGradientWeights<GPU, CONFIG>;
  using Nonfinite = HopperNonfiniteValues<GPU, CONFIG>;
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
          gpu.SyncGroup(Barrier());  // The rows of the last task are no longer read.
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

  // Finds the visible pairs of the thread's own rows in a tile. Returns true if some slot does not
  // see some key.
  ANNULUS_GPU bool Look(const HopperWork& work, int32_t tile, bool masked, int stage, State& state,
                        uint32_t (&seen)[2]) const {
    if constexpr (CONFIG::kOfQueries) {
      const HopperSlots<GPU, CONFIG> slots{gpu, args.forward, work.item};
      if (!masked) return false;
      ANNULUS_UNROLL
      for (int half = 0; half < 2; ++half)
        seen[half] = slots.VisibleOf(work.task, state.slots[half], tile);
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

  // Adds rows that are not finite, for own rows that see them. Other rows get the same result as
  // without.
  ANNULUS_GPU static void AddNonfinite(const Nonfinite& rows,
                                       const typename Multiply::Packed& weights,
                                       const uint32_t (&seen)[2], float scale,
                                       typename Multiply::Sums& sums) {
    rows.Add(
        weights, seen, scale, [&](int row) { return rows.IsNonfinite(row); }, sums);
  }
  // Both groups call it for the same tile, after all products that read the tile.
  ANNULUS_GPU void HideNonfinite(const Nonfinite& first, const Nonfinite& second) const {
    gpu.SyncConsumers();
    for (int row = gpu.Thread() / 32 - kGroupThreads / 32; row < CONFIG::kOthers;
         row += kConsumerWarps) {
      if (first.IsNonfinite(row)) first.Clear(row);
      if (!CONFIG::kOfQueries && second.IsNonfinite(row)) second.Clear(row);
    }
    gpu.FenceAsync();
    gpu.SyncConsumers();
  }

  ANNULUS_GPU void RunTile(const HopperWork& work, int32_t tile, bool masked,
                           const typename CONFIG::Ring& ring, State& state) const {
    const Multiply multiply{gpu, group};
    const int stage = gpu.Uniform(ring.stage());
    gpu.AwaitBarrier(CONFIG::BarrierAt(kOthersCame, stage), ring.parity());
    gpu.SyncWarp();  // A warp starts products as a whole.
    typename Multiply::Scores scores, d_scores;
    multiply.BeginScores(false, stage, scores);
    multiply.BeginScores(true, stage, d_scores);
    uint32_t seen[2] = {~uint32_t{0}, ~uint32_t{0}};
    const bool hides = Look(work, tile, masked, stage, state, seen);
    const Nonfinite first{gpu, CONFIG::OthersAt(false, stage)};
    const Nonfinite second{gpu, CONFIG::OthersAt(true, stage)};
    bool any_nonfinite = false;
    if (hides) any_nonfinite = first.Any() || (!CONFIG::kOfQueries && second.Any());
    gpu.SyncWarp();
    const Weights weights{gpu, args.forward, state.lse, state.lse_rest, state.delta};
    gpu.template AwaitProductsBut<1>(scores);
    weights.Weigh(stage, scores);
    gpu.Finish({Weights::AllOf(scores), 0});  // Overlaps the other product.
    gpu.AwaitProducts(d_scores);
    weights.Differentiate(stage, scores, d_scores);
    if (hides) {
      Weights::Hide(seen, scores);
      Weights::Hide(seen, d_scores);
    }
    const bool by_numbers = hides && gpu.SyncGroupOr(Barrier(), any_nonfinite);
    gpu.SyncWarp();
    const float scale = args.forward.scale;
    typename Multiply::Packed packed, d_packed;
    if constexpr (!CONFIG::kOfQueries) Weights::Pack(scores, packed);
    Weights::Pack(d_scores, d_packed);
    if (by_numbers) {
      AddNonfinite(first, d_packed, seen, scale, state.first);
      if constexpr (!CONFIG::kOfQueries) AddNonfinite(second, packed, seen, 1.0f, state.second);
      HideNonfinite(first, second);
    }
    if constexpr (!CONFIG::kOfQueries) multiply.AddSums(true, stage, 1.0f, packed, state.second);
    multiply.AddSums(false, stage, scale, d_packed, state.first);
    gpu.SyncWarp();
    if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(kOthersRead, stage));
  }
};

// The work of one thread block: brings the accumulators of an item up to date with all of its
// tasks.
template <class GPU, class CONFIG>
struct HopperGradientBlock {
  GPU& gpu;
  const GradientArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    const auto* items =
        reinterpret_cast<const ForwardItem*>(args.forward.tables + args.forward.at.items);
    const HopperTiles<GPU> tiles{gpu, args, items[block]};
    if (gpu.Thread() == 0) MakeBarriers();
    ClearSlotsThatNeverCome();
    gpu.Sync();
    if (gpu.Thread() < kGroupThreads) {
      gpu.template ReleaseRegisters<kGradientProducerRegisters>();
      const HopperGradientProducer<GPU, CONFIG> producer{gpu, args, tiles};
      producer.Run();
    } else {
      gpu.template TakeRegisters<kGradientConsumerRegisters>();
      const HopperGradientConsumer<GPU, CONFIG> consumer{gpu, args, tiles};
      consumer.Run();
    }
  }

 private:
  ANNULUS_GPU void MakeBarriers() const {
    for (int stage = 0; stage < CONFIG::kStages; ++stage) {
      gpu.MakeBarrier(CONFIG::BarrierAt(kOthersCame, stage),
                      1 + (CONFIG::kOfQueries ? 0 : kInfoWarps));
      gpu.MakeBarrier(CONFIG::BarrierAt(kOthersRead, stage), kConsumerWarps);
    }
    gpu.FenceBarriers();
  }
  // Clears the slots of streamed tiles that no row fills: products read them too.
  ANNULUS_GPU void ClearSlotsThatNeverCome() const {
    if constexpr (!CONFIG::kOfQueries) {
      const int32_t group = args.forward.group;
      const uint32_t from = RowsThatComeBy(CONFIG::kOthers, group) * group * kPanelRowBytes;
      if (from == CONFIG::kKeyPanelBytes) return;
      for (int panel = 0; panel < CONFIG::kStages * 2 * CONFIG::kPanels; ++panel) {
        const uint32_t panel_at = CONFIG::kOthersAt + panel * CONFIG::kKeyPanelBytes;
        for (uint32_t at = from + gpu.Thread() * 16; at < CONFIG::kKeyPanelBytes;
             at += kHopperThreads * 16)
          gpu.template StoreShared<Chunk>(panel_at + at, Chunk{{0, 0, 0, 0}});
      }
      gpu.FenceAsync();
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_BLOCK_INL_H_
