#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_

#include "worker/kernel/cuda/hopper_ahead.h"
#include "worker/kernel/cuda/hopper_state.h"
#include "worker/kernel/cuda/hopper_values.h"

namespace annulus::cuda {

// A thread of a group that multiplies. The two groups take turns at beginning products, so that one
// has its softmax while the other's run: both go through the same tiles, whatever their slots see,
// so each turn is followed by one of the other group.
template <class GPU, class CONFIG>
struct HopperConsumer {
  using State = HopperState<GPU, CONFIG>;
  using Softmax = HopperSoftmax<GPU, CONFIG>;
  using Slots = HopperSlots<GPU, CONFIG>;
  using Multiply = HopperMultiply<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardItem& item;
  Multiply multiply{gpu};

  ANNULUS_GPU void Run() const {
    const auto* tasks = reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks);
    const TableReader<GPU> tables{gpu, args};
    HopperStage<CONFIG> ring;
    if (multiply.group == 1) gpu.PassTurn(1);  // The first is the other's.
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      const auto first = tables.template Get<int32_t>(args.at.unit_runs, unit);
      const auto last = tables.template Get<int32_t>(args.at.unit_runs, unit + 1);
      if (first < last)
        RunTask(tasks[tables.template Get<int32_t>(args.at.units, unit)], first, last, ring);
    }
    if (multiply.group == 0) gpu.AwaitTurn(0);  // What the other has passed on.
  }

 private:
  ANNULUS_GPU int Barrier() const { return 1 + multiply.group; }  // 0 is the block's.

  ANNULUS_GPU void RunTask(const ForwardTask& task, int32_t first, int32_t last,
                           HopperStage<CONFIG>& ring) const {
    const Slots slots{gpu, args, item};
    const HopperStateRows<GPU, CONFIG> rows{gpu, args, task};
    gpu.SyncGroup(Barrier());  // The last task's queries are read.
    slots.LoadQueries(task, multiply.QueriesAt());
    gpu.FenceAsync();
    gpu.SyncGroup(Barrier());
    State state;
    rows.Load(slots, state);
    const TableReader<GPU> tables{gpu, args};
    gpu.AwaitTurn(multiply.group);
    for (int32_t i = first; i < last; ++i) {
      const auto run = tables.template Get<KeyTileRun>(args.at.key_runs, i);
      if (CONFIG::kAhead && run.masked == 0)
        RunAhead(run.end - run.begin, ring, state);
      else
        RunTiles(task, slots, run, ring, state);
    }
    gpu.PassTurn(multiply.group);
    rows.Store(slots, state);
  }

  ANNULUS_GPU void RunAhead(int32_t tiles, HopperStage<CONFIG>& ring, State& state) const {
    if constexpr (CONFIG::kAhead) {
      const HopperAhead<GPU, CONFIG> ahead{gpu, args, multiply};
      ahead.Run(tiles, ring, state);
    }
  }

  // One after the other.
  ANNULUS_GPU void RunTiles(const ForwardTask& task, const Slots& slots, const KeyTileRun& run,
                            HopperStage<CONFIG>& ring, State& state) const {
    HopperSlot mine[2];
    if (run.masked != 0) {
      mine[0] = slots.Find(task, 0);
      mine[1] = slots.Find(task, 1);
    }
    for (int32_t tile = run.begin; tile < run.end; ++tile) {
      RunTile(task, slots, run.masked != 0, tile, ring, mine, state);
      ring.Next();
    }
  }

  // The group has the turn when it comes and goes.
  ANNULUS_GPU void RunTile(const ForwardTask& task, const Slots& slots, bool masked, int32_t tile,
                           const HopperStage<CONFIG>& ring, HopperSlot (&mine)[2],
                           State& state) const {
    typename Multiply::Scores scores;
    multiply.BeginScores(ring, scores);
    gpu.PassTurn(multiply.group);
    gpu.AwaitProducts(scores);
    multiply.Release(kKeysRead, ring);
    uint32_t seen[2];
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half)
      seen[half] = masked ? slots.SeenOf(task, mine[half], tile) : ~uint32_t{0};
    const Softmax softmax{gpu, args};
    float shrink[2];
    softmax.Weigh(masked, seen, scores, state, shrink);
    typename Multiply::Weights weights;
    Softmax::Pack(scores, weights);
    gpu.AwaitBarrier(CONFIG::BarrierAt(kValuesCame, ring.stage), ring.parity);
    const HopperUnsoundValues<GPU, CONFIG> unsound{gpu, CONFIG::ValuesAt(ring.stage)};
    const bool by_numbers = masked && gpu.SyncGroupOr(Barrier(), unsound.Any());
    gpu.AwaitTurn(multiply.group);
    if (by_numbers) {
      ANNULUS_UNROLL
      for (int i = 0; i < State::kSums; ++i) state.sums[i] *= shrink[i % 4 / 2];
      unsound.Add(weights, seen, state);
    } else {
      multiply.AddSums(ring, weights, shrink, state);
    }
    multiply.Release(kValuesRead, ring);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_
