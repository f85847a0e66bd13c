#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_

#include "worker/kernel/cuda/hopper_consumer.h"

namespace annulus::cuda {

// One block of threads: brings the slots of an item up to date with all of its tasks.
template <class GPU, class CONFIG>
struct HopperBlock {
  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    const auto& item = reinterpret_cast<const ForwardItem*>(args.tables + args.at.items)[block];
    if (gpu.Thread() == 0) MakeBarriers();
    gpu.Sync();
    if (gpu.Thread() < kGroupThreads) {
      gpu.template ReleaseRegisters<kProducerRegisters>();
      if (gpu.Thread() == 0) Bring(item);
    } else {
      gpu.template TakeRegisters<kConsumerRegisters>();
      const HopperConsumer<GPU, CONFIG> consumer{gpu, args, item};
      consumer.Run();
    }
  }

 private:
  ANNULUS_GPU void MakeBarriers() const {
    for (int stage = 0; stage < CONFIG::kStages; ++stage) {
      gpu.MakeBarrier(CONFIG::BarrierAt(kKeysCame, stage), 1);
      gpu.MakeBarrier(CONFIG::BarrierAt(kKeysRead, stage), kConsumerWarps);
      gpu.MakeBarrier(CONFIG::BarrierAt(kValuesCame, stage), 1);
      gpu.MakeBarrier(CONFIG::BarrierAt(kValuesRead, stage), kConsumerWarps);
    }
    gpu.FenceBarriers();
  }

  // The producer: all tiles of an item, as the ring has room.
  ANNULUS_GPU void Bring(const ForwardItem& item) const {
    const auto* tasks = reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks);
    const TableReader<GPU> tables{gpu, args};
    HopperStage<CONFIG> ring;
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      const auto number = tables.template Get<int32_t>(args.at.units, unit);
      const ForwardTask& task = tasks[number];
      const std::byte* maps = args.tables + args.at.maps + number * (kMapsOfTask * kMapBytes);
      gpu.AcquireMap(maps);
      gpu.AcquireMap(maps + kMapBytes);
      const auto last = tables.template Get<int32_t>(args.at.unit_runs, unit + 1);
      for (auto i = tables.template Get<int32_t>(args.at.unit_runs, unit); i < last; ++i) {
        const auto run = tables.template Get<KeyTileRun>(args.at.key_runs, i);
        for (int32_t tile = run.begin; tile < run.end; ++tile) {
          const int32_t row = tile * CONFIG::kKeys - task.k_begin;
          const int32_t head = item.kv_head - task.kv.head_begin;
          BringTile(maps, head, row, CONFIG::KeysAt(ring.stage), kKeysCame, kKeysRead, ring);
          BringTile(maps + kMapBytes, head, row, CONFIG::ValuesAt(ring.stage), kValuesCame,
                    kValuesRead, ring);
          ring.Next();
        }
      }
    }
  }

  ANNULUS_GPU void BringTile(const std::byte* map, int32_t head, int32_t row, uint32_t to,
                             HopperBarrier came, HopperBarrier read,
                             const HopperStage<CONFIG>& ring) const {
    const uint32_t barrier = CONFIG::BarrierAt(came, ring.stage);
    gpu.AwaitBarrier(CONFIG::BarrierAt(read, ring.stage), ring.parity ^ 1);
    gpu.ArriveExpecting(barrier, CONFIG::kTileBytes);
    ANNULUS_UNROLL
    for (int panel = 0; panel < CONFIG::kPanels; ++panel)
      gpu.LoadBox(to + panel * CONFIG::kKeyPanelBytes, map, panel * kPanelColumns, head, row,
                  barrier);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_
