#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_BLOCK_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_BLOCK_INL_H_

#include "worker/kernel/cuda/sm90/hopper_epilogue-inl.h"
#include "worker/kernel/cuda/sm90/hopper_mainloop-inl.h"
#include "worker/kernel/cuda/sm90/hopper_producer-inl.h"

// The forward kernel for sm_90a, warp-specialised as in FlashAttention-3: one producer warp group,
// two consumer warp groups. Included by hopper_kernel.cuh, and by the tests' emulator. Start at
// HopperBlock::Run; the parts are in hopper_producer-inl.h, hopper_mainloop-inl.h,
// hopper_softmax-inl.h and hopper_epilogue-inl.h.
namespace annulus::cuda {

// A thread of a consumer group. The two groups take turns at starting products, so that one runs
// its softmax during the other's products (ping-pong). Both go through the same tiles, whatever
// their slots see, so turns alternate.
template <class GPU, class CONFIG>
struct HopperConsumer {
  using State = HopperState<GPU, CONFIG>;
  using Softmax = HopperSoftmax<GPU, CONFIG>;
  using Slots = HopperSlots<GPU, CONFIG>;
  using Multiply = HopperMultiply<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  int group = gpu.Uniform(gpu.Thread() / kGroupThreads - 1);

  ANNULUS_GPU void Run() const {
    HopperItems<GPU, CONFIG> items{gpu, args};
    typename CONFIG::Ring ring;
    typename CONFIG::QueryRing queries;
    if (group == 1) gpu.PassTurn(1);  // The other group has the first turn.
    while (const ForwardItem* const item = items.Next()) RunItem(*item, queries, ring);
    if (group == 0) gpu.AwaitTurn(0);  // Takes the other group's last PassTurn.
  }

 private:
  ANNULUS_GPU int Barrier() const { return 1 + group; }  // 0 is the block's.

  ANNULUS_GPU void RunItem(const ForwardItem& item, typename CONFIG::QueryRing& queries,
                           typename CONFIG::Ring& ring) const {
    const auto* tasks = reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks);
    const TableReader<GPU> tables{gpu, args};
    const Slots slots{gpu, args, item};
    const int32_t units = gpu.Uniform(item.unit_end);
    for (int32_t unit = gpu.Uniform(item.unit_begin); unit < units; ++unit) {
      // Uniform registers: the warp's common values must not take registers of each thread.
      const auto get = [&](int64_t table, int64_t i) {
        return gpu.Uniform(tables.template Get<int32_t>(table, i));
      };
      const int32_t first = get(args.at.unit_runs, unit), last = get(args.at.unit_runs, unit + 1);
      if (first == last) continue;
      const ForwardTask& task = tasks[get(args.at.units, unit)];
      const Multiply multiply{gpu, group, gpu.Uniform(queries.stage())};
      const HopperStateRows<GPU, CONFIG> rows{gpu, args, task};
      State state;
      rows.Load(slots, state);
      gpu.AwaitBarrier(CONFIG::BarrierAt(kQueriesCame, queries.stage()), queries.parity());
      gpu.SyncWarp();  // A warp takes its turns as a whole.
      gpu.AwaitTurn(group);
      for (int32_t i = first; i < last; ++i) {
        const auto run = tables.template Get<KeyTileRun>(args.at.key_runs, i);
        if (CONFIG::kAhead && run.masked == 0)
          RunAhead(multiply, run.end - run.begin, ring, state);
        else
          RunTiles(task, slots, multiply, run, ring, state);
      }
      gpu.PassTurn(group);
      multiply.Release(kQueriesRead, queries.stage());
      queries.Next();
      rows.Store(slots, state);
      gpu.SyncWarp();  // The next task may use the same rows, with other lanes' values.
    }
  }

  ANNULUS_GPU void RunAhead(const Multiply& multiply, int32_t tiles, typename CONFIG::Ring& ring,
                            State& state) const {
    if constexpr (CONFIG::kAhead) {
      const HopperAhead<GPU, CONFIG> ahead{gpu, args, multiply};
      ahead.Run(tiles, ring, state);
    }
  }

  // Processes tiles one after the other.
  ANNULUS_GPU void RunTiles(const ForwardTask& task, const Slots& slots, const Multiply& multiply,
                            const KeyTileRun& run, typename CONFIG::Ring& ring,
                            State& state) const {
    HopperSlot mine[2];
    if (run.masked != 0) {
      mine[0] = slots.Find(task, 0);
      mine[1] = slots.Find(task, 1);
    }
    for (int32_t tile = run.begin; tile < run.end; ++tile) {
      RunTile(task, slots, multiply, run.masked != 0, tile, ring, mine, state);
      ring.Next();
    }
  }

  // The group has the turn on entry and on exit.
  ANNULUS_GPU void RunTile(const ForwardTask& task, const Slots& slots, const Multiply& multiply,
                           bool masked, int32_t tile, const typename CONFIG::Ring& ring,
                           HopperSlot (&mine)[2], State& state) const {
    typename Multiply::Scores scores;
    multiply.BeginScores(ring, scores);
    gpu.PassTurn(group);
    // During the products of the scores.
    uint32_t seen[2];
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half)
      seen[half] = masked ? slots.VisibleOf(task, mine[half], tile) : ~uint32_t{0};
    gpu.AwaitBarrier(CONFIG::BarrierAt(kValuesCame, ring.stage()), ring.parity());
    const HopperNonfiniteValues<GPU, CONFIG> nonfinite{gpu, CONFIG::ValuesAt(ring.stage())};
    const bool any_nonfinite = masked && nonfinite.Any();
    gpu.SyncWarp();
    gpu.AwaitProducts(scores);
    multiply.Release(kKeysRead, ring.stage());
    const Softmax softmax{gpu, args};
    float shrink[2];
    softmax.Weigh(masked, seen, scores, state, shrink);
    typename Multiply::Weights weights;
    Softmax::Pack(scores, weights);
    const bool by_numbers = masked && gpu.SyncGroupOr(Barrier(), any_nonfinite);
    gpu.AwaitTurn(group);
    if (by_numbers) {
      ANNULUS_UNROLL
      for (int i = 0; i < State::kSums; ++i) state.sums[i] *= shrink[i % 4 / 2];
      nonfinite.Add(
          weights, seen, 1.0f, [](int) { return true; }, state.sums);
    } else {
      multiply.AddSums(ring, weights, shrink, state);
    }
    multiply.Release(kValuesRead, ring.stage());
  }
};

// The work of one thread block: takes items until none is left, and brings the slots of each up to
// date with all of its tasks.
template <class GPU, class CONFIG>
struct HopperBlock {
  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    if (gpu.Thread() == 0) MakeBarriers();
    gpu.Sync();
    if (gpu.Thread() < kGroupThreads) {
      gpu.template ReleaseRegisters<kProducerRegisters>();
      const HopperProducer<GPU, CONFIG> producer{gpu, args};
      producer.Run(block);
    } else {
      gpu.template TakeRegisters<kConsumerRegisters>();
      const HopperConsumer<GPU, CONFIG> consumer{gpu, args};
      consumer.Run();
    }
  }

 private:
  ANNULUS_GPU void MakeBarriers() const {
    MakeRing(kKeysCame, kKeysRead, CONFIG::kStages, 1, kConsumerWarps);
    MakeRing(kValuesCame, kValuesRead, CONFIG::kStages, 1, kConsumerWarps);
    MakeRing(kItemCame, kItemRead, kItemStages, 1, kConsumerWarps + kQueryThreads / 32);
    MakeRing(kQueriesCame, kQueriesRead, CONFIG::kQueryStages, kQueryThreads / 32, kConsumerWarps);
    gpu.FenceBarriers();
  }
  // Makes a ring with `fill` producer arrivals and `readers` consumer arrivals per phase.
  ANNULUS_GPU void MakeRing(HopperBarrier came, HopperBarrier read, int stages, int fill,
                            int readers) const {
    for (int stage = 0; stage < stages; ++stage) {
      gpu.MakeBarrier(CONFIG::BarrierAt(came, stage), fill);
      gpu.MakeBarrier(CONFIG::BarrierAt(read, stage), readers);
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_BLOCK_INL_H_
