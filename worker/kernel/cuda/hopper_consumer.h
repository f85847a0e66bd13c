#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_

#include "worker/kernel/cuda/hopper_state.h"
#include "worker/kernel/cuda/hopper_values.h"

namespace annulus::cuda {

// A thread of a group that multiplies. While one group has its softmax, the other's products run.
template <class GPU, class CONFIG>
struct HopperConsumer {
  using State = HopperState<GPU, CONFIG>;
  using Softmax = HopperSoftmax<GPU, CONFIG>;
  using Slots = HopperSlots<GPU, CONFIG>;
  using Weights = uint32_t[State::kSteps][4];

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardItem& item;
  int group = gpu.Thread() / kGroupThreads - 1;
  uint32_t queries_at = CONFIG::kQueriesAt + group * CONFIG::kPanels * CONFIG::kQueryPanelBytes;

  ANNULUS_GPU void Run() const {
    const auto* tasks = reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks);
    const TableReader<GPU> tables{gpu, args};
    HopperStage<CONFIG> ring;
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      const auto first = tables.template Get<int32_t>(args.at.unit_runs, unit);
      const auto last = tables.template Get<int32_t>(args.at.unit_runs, unit + 1);
      if (first < last)
        RunTask(tasks[tables.template Get<int32_t>(args.at.units, unit)], first, last, ring);
    }
  }

 private:
  ANNULUS_GPU int Barrier() const { return 1 + group; }  // 0 is the block's.

  ANNULUS_GPU void RunTask(const ForwardTask& task, int32_t first, int32_t last,
                           HopperStage<CONFIG>& ring) const {
    const Slots slots{gpu, args, item};
    const HopperStateRows<GPU, CONFIG> rows{gpu, args, task};
    gpu.SyncGroup(Barrier());  // The last task's queries are read.
    slots.LoadQueries(task, queries_at);
    gpu.FenceAsync();
    gpu.SyncGroup(Barrier());
    HopperSlot mine[2] = {slots.Find(task, 0), slots.Find(task, 1)};
    State state;
    rows.Load(mine, state);
    const TableReader<GPU> tables{gpu, args};
    for (int32_t i = first; i < last; ++i) {
      const auto run = tables.template Get<KeyTileRun>(args.at.key_runs, i);
      for (int32_t tile = run.begin; tile < run.end; ++tile) {
        RunTile(task, slots, run.masked != 0, tile, ring, mine, state);
        ring.Next();
      }
    }
    // Found again, so that they take no registers while products run.
    mine[0] = slots.Find(task, 0);
    mine[1] = slots.Find(task, 1);
    rows.Store(mine, state);
  }

  ANNULUS_GPU void RunTile(const ForwardTask& task, const Slots& slots, bool masked, int32_t tile,
                           const HopperStage<CONFIG>& ring, HopperSlot (&mine)[2],
                           State& state) const {
    float scores[State::kScores];
    Score(ring, scores);
    uint32_t seen[2];
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half)
      seen[half] = masked ? slots.SeenOf(task, mine[half], tile) : ~uint32_t{0};
    const Softmax softmax{gpu, args};
    float shrink[2];
    softmax.Weigh(masked, seen, scores, state, shrink);
    Weights weights;
    Softmax::Pack(scores, weights);
    gpu.AwaitBarrier(CONFIG::BarrierAt(kValuesCame, ring.stage), ring.parity);
    const HopperUnsoundValues<GPU, CONFIG> unsound{gpu, CONFIG::ValuesAt(ring.stage)};
    if (masked && gpu.SyncGroupOr(Barrier(), unsound.Any())) {
      ANNULUS_UNROLL
      for (int i = 0; i < State::kSums; ++i) state.sums[i] *= shrink[i % 4 / 2];
      unsound.Add(weights, seen, state);
    } else {
      Accumulate(ring, weights, shrink, state);
    }
    Release(kValuesRead, ring);
  }

  // scores = queries · keys, unscaled.
  ANNULUS_GPU void Score(const HopperStage<CONFIG>& ring, float (&scores)[State::kScores]) const {
    gpu.AwaitBarrier(CONFIG::BarrierAt(kKeysCame, ring.stage), ring.parity);
    gpu.SyncWarp();  // Products are of whole warps.
    gpu.FenceProducts(scores);
    ANNULUS_UNROLL
    for (int column = 0; column < CONFIG::kDim; column += 16) {
      gpu.template MultiplyRows<CONFIG::kElement, CONFIG::kKeys>(
          gpu.Descriptor(AlongRows(queries_at, CONFIG::kQueryPanelBytes, column)),
          gpu.Descriptor(AlongRows(CONFIG::KeysAt(ring.stage), CONFIG::kKeyPanelBytes, column)),
          scores, column != 0);
    }
    gpu.CommitProducts();
    gpu.AwaitProducts(scores);
    Release(kKeysRead, ring);
  }

  // sums = shrink · sums + weights · values, by slot. A tile's sum is made apart, because tensor
  // cores cut off what they add to a sum: over many keys that would add up.
  ANNULUS_GPU void Accumulate(const HopperStage<CONFIG>& ring, Weights& weights,
                              const float (&shrink)[2], State& state) const {
    constexpr int kPanelsOfPart = CONFIG::kPart / kPanelColumns;
    gpu.SyncWarp();
    ANNULUS_UNROLL
    for (int part = 0; part < CONFIG::kParts; ++part) {
      const uint32_t at =
          CONFIG::ValuesAt(ring.stage) + part * kPanelsOfPart * CONFIG::kKeyPanelBytes;
      float more[CONFIG::kPart / 2];
      gpu.FenceProducts(more, weights);
      ANNULUS_UNROLL
      for (int step = 0; step < State::kSteps; ++step) {
        gpu.template MultiplyColumns<CONFIG::kElement, CONFIG::kPart>(
            weights[step], gpu.Descriptor(AcrossRows(at, CONFIG::kKeyPanelBytes, step * 16)), more,
            step != 0);
      }
      gpu.CommitProducts();
      gpu.AwaitProducts(more, weights);
      ANNULUS_UNROLL
      for (int i = 0; i < CONFIG::kPart / 2; ++i) {
        float& sum = state.sums[part * (CONFIG::kPart / 2) + i];
        sum = GPU::Fma(sum, shrink[i % 4 / 2], more[i]);
      }
    }
  }

  // The warp has read a tile.
  ANNULUS_GPU void Release(HopperBarrier barrier, const HopperStage<CONFIG>& ring) const {
    gpu.SyncWarp();
    if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(barrier, ring.stage));
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONSUMER_H_
