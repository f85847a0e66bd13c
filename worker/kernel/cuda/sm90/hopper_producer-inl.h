#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_PRODUCER_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_PRODUCER_INL_H_

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm90/hopper_slots-inl.h"

// The producer of the forward kernel for sm_90a. Included by hopper_block-inl.h. Start at
// HopperProducer::Run; HopperItems is the tile scheduler of the persistent blocks.
namespace annulus::cuda {

// The items of a persistent block: first the item of its own number, then the next item that no
// block has taken. One thread takes items, and passes them to the others through a ring.
template <class GPU, class CONFIG>
struct HopperItems {
  GPU& gpu;
  const ForwardArgs& args;
  typename CONFIG::ItemRing ring = {};

  // Takes an item and puts it into the ring. Only one thread calls it.
  ANNULUS_GPU const ForwardItem* Take(bool first, int64_t block) {
    // The counter belongs to the launch and is in its tables; each upload sets it to 0.
    const int64_t number =
        first ? block : gpu.Blocks() + gpu.CountUp(args.tables + args.at.next_item);
    gpu.AwaitBarrier(CONFIG::BarrierAt(kItemRead, ring.stage()), ring.parity() ^ 1);
    gpu.template StoreShared<int32_t>(CONFIG::ItemAt(ring.stage()), static_cast<int32_t>(number));
    gpu.Arrive(CONFIG::BarrierAt(kItemCame, ring.stage()));
    ring.Next();
    return ItemOf(number);
  }

  // Returns the next taken item, or nullptr after the last. The other warps call it.
  ANNULUS_GPU const ForwardItem* Next() {
    gpu.AwaitBarrier(CONFIG::BarrierAt(kItemCame, ring.stage()), ring.parity());
    const auto in_shared = gpu.template LoadShared<int32_t>(CONFIG::ItemAt(ring.stage()));
    const int32_t number = gpu.Uniform(in_shared);
    gpu.SyncWarp();
    if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(kItemRead, ring.stage()));
    ring.Next();
    return ItemOf(number);
  }

 private:
  ANNULUS_GPU const ForwardItem* ItemOf(int64_t number) const {
    if (number >= args.items) return nullptr;
    return reinterpret_cast<const ForwardItem*>(args.tables + args.at.items) + number;
  }
};

// The producer warp group: fills the stages of its rings as they become free, and so runs ahead
// into the next item. Its first thread takes items and loads keys and values; its last three warps
// load queries.
template <class GPU, class CONFIG>
struct HopperProducer {
  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    if (gpu.Thread() == 0) BringTiles(block);
    if (gpu.Thread() >= kGroupThreads - kQueryThreads) BringQueries();
  }

 private:
  ANNULUS_GPU const ForwardTask& TaskOf(int32_t number) const {
    return reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks)[number];
  }

  ANNULUS_GPU void BringTiles(int64_t block) const {
    HopperItems<GPU, CONFIG> items{gpu, args};
    typename CONFIG::Ring ring;
    for (bool first = true;; first = false) {
      const ForwardItem* const item = items.Take(first, block);
      if (item == nullptr) return;
      BringItem(*item, ring);
    }
  }

  ANNULUS_GPU void BringItem(const ForwardItem& item, typename CONFIG::Ring& ring) const {
    const TableReader<GPU> tables{gpu, args};
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      const auto number = tables.template Get<int32_t>(args.at.units, unit);
      const ForwardTask& task = TaskOf(number);
      const std::byte* maps = args.tables + args.at.maps + number * (kMapsOfTask * kMapBytes);
      gpu.AcquireMap(maps);
      gpu.AcquireMap(maps + kMapBytes);
      const auto last = tables.template Get<int32_t>(args.at.unit_runs, unit + 1);
      for (auto i = tables.template Get<int32_t>(args.at.unit_runs, unit); i < last; ++i) {
        const auto run = tables.template Get<KeyTileRun>(args.at.key_runs, i);
        for (int32_t tile = run.begin; tile < run.end; ++tile) {
          const int32_t row = tile * CONFIG::kKeys - task.k_begin;
          const int32_t head = item.kv_head - task.kv.head_begin;
          BringTile(maps, head, row, CONFIG::KeysAt(ring.stage()), kKeysCame, kKeysRead, ring);
          BringTile(maps + kMapBytes, head, row, CONFIG::ValuesAt(ring.stage()), kValuesCame,
                    kValuesRead, ring);
          ring.Next();
        }
      }
    }
  }

  ANNULUS_GPU void BringTile(const std::byte* map, int32_t head, int32_t row, uint32_t to,
                             HopperBarrier came, HopperBarrier read,
                             const typename CONFIG::Ring& ring) const {
    const uint32_t barrier = CONFIG::BarrierAt(came, ring.stage());
    gpu.AwaitBarrier(CONFIG::BarrierAt(read, ring.stage()), ring.parity() ^ 1);
    gpu.ArriveExpecting(barrier, CONFIG::kTileBytes);
    ANNULUS_UNROLL
    for (int panel = 0; panel < CONFIG::kPanels; ++panel)
      gpu.LoadBox(to + panel * CONFIG::kKeyPanelBytes, map, panel * kPanelColumns, head, row,
                  barrier);
  }

  // Loads the queries of each unit that has tiles.
  ANNULUS_GPU void BringQueries() const {
    const TableReader<GPU> tables{gpu, args};
    HopperItems<GPU, CONFIG> items{gpu, args};
    typename CONFIG::QueryRing ring;
    while (const ForwardItem* const item = items.Next()) {
      const HopperSlots<GPU, CONFIG> slots{gpu, args, *item};
      for (int32_t unit = item->unit_begin; unit < item->unit_end; ++unit) {
        if (tables.template Get<int32_t>(args.at.unit_runs, unit) ==
            tables.template Get<int32_t>(args.at.unit_runs, unit + 1))
          continue;
        gpu.AwaitBarrier(CONFIG::BarrierAt(kQueriesRead, ring.stage()), ring.parity() ^ 1);
        slots.CopyQueries(TaskOf(tables.template Get<int32_t>(args.at.units, unit)), ring.stage());
        gpu.template WaitCopies<0>();
        gpu.FenceAsync();
        gpu.SyncWarp();
        if (gpu.Thread() % 32 == 0) gpu.Arrive(CONFIG::BarrierAt(kQueriesCame, ring.stage()));
        ring.Next();
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_PRODUCER_INL_H_
