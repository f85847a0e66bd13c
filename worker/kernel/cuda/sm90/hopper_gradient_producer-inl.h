#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PRODUCER_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PRODUCER_INL_H_

#include "worker/kernel/cuda/sm90/hopper_gradient_rows-inl.h"

// The producer of the gradient kernel for sm_90a. Included by hopper_gradient_block-inl.h. Start at
// HopperGradientProducer::Run; HopperTiles is the loop over tiles that producer and consumers
// share.
namespace annulus::cuda {

// Iterates over the streamed tiles of an item, in order: calls act(work, number of the task, tile,
// masked) for each tile, and `begin` and `end` around the tiles of a task.
template <class GPU>
struct HopperTiles {
  GPU& gpu;
  const GradientArgs& args;
  const ForwardItem& item;

  template <class BEGIN, class ACT, class END>
  ANNULUS_GPU void ForEach(const BEGIN& begin, const ACT& act, const END& end) const {
    const ForwardArgs& forward = args.forward;
    const TableReader<GPU> tables{gpu, forward};
    const auto get = [&](int64_t table, int64_t i) {
      return tables.template Get<int32_t>(table, i);
    };
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      const int32_t number = get(forward.at.units, unit);
      const HopperWork work = {
          item, reinterpret_cast<const ForwardTask*>(forward.tables + forward.at.tasks)[number],
          reinterpret_cast<const GradientTask*>(forward.tables + args.tasks)[number]};
      begin(work, number);
      const int32_t last = get(forward.at.unit_runs, unit + 1);
      for (int32_t i = get(forward.at.unit_runs, unit); i < last; ++i) {
        const auto run = tables.template Get<KeyTileRun>(forward.at.key_runs, i);
        for (int32_t tile = run.begin; tile < run.end; ++tile) act(work, tile, run.masked != 0);
      }
      end(work);
    }
  }
};

// The producer warp group: fills stages of the ring as they become free. Its first thread loads
// rows by TMA. If slots are streamed, its last warps write their LSE and the keys that they see.
template <class GPU, class CONFIG>
struct HopperGradientProducer {
  GPU& gpu;
  const GradientArgs& args;
  const HopperTiles<GPU>& tiles;

  ANNULUS_GPU void Run() const {
    if (gpu.Thread() == 0) BringRows();
    if (!CONFIG::kOfQueries && gpu.Thread() >= kGroupThreads - kInfoWarps * 32) BringInfo();
  }

 private:
  // Waits until the stage is free.
  ANNULUS_GPU void AwaitRoom(const typename CONFIG::Ring& ring) const {
    gpu.AwaitBarrier(CONFIG::BarrierAt(kOthersRead, ring.stage()), ring.parity() ^ 1);
  }

  ANNULUS_GPU void BringRows() const {
    typename CONFIG::Ring ring;
    const std::byte* maps = nullptr;
    const int32_t group = args.forward.group;
    const int rows = CONFIG::kOfQueries ? CONFIG::kOthers : RowsThatComeBy(CONFIG::kOthers, group);
    const uint32_t bytes = rows * (CONFIG::kOfQueries ? 1 : group) * kPanelRowBytes;
    tiles.ForEach(
        [&](const HopperWork&, int32_t number) {
          maps = args.forward.tables + args.forward.at.maps + number * (kMapsOfTask * kMapBytes);
          gpu.AcquireMap(maps);
          gpu.AcquireMap(maps + kMapBytes);
        },
        [&](const HopperWork& work, int32_t tile, bool) {
          const uint32_t barrier = CONFIG::BarrierAt(kOthersCame, ring.stage());
          const int32_t row = tile * rows - work.more.map_row;
          const int32_t head = CONFIG::kOfQueries
                                   ? work.item.kv_head - work.task.kv.head_begin
                                   : work.item.kv_head * group - work.task.q.head_begin;
          AwaitRoom(ring);
          gpu.ArriveExpecting(barrier, 2 * CONFIG::kPanels * bytes);
          ANNULUS_UNROLL
          for (int i = 0; i < 2 * CONFIG::kPanels; ++i) {
            const int panel = i % CONFIG::kPanels;
            const bool second = i >= CONFIG::kPanels;
            gpu.LoadBox(CONFIG::OthersAt(second, ring.stage()) + panel * CONFIG::kKeyPanelBytes,
                        maps + (second ? kMapBytes : 0), panel * kPanelColumns, head, row, barrier);
          }
          ring.Next();
        },
        [](const HopperWork&) {});
  }

  ANNULUS_GPU void BringInfo() const {
    typename CONFIG::Ring ring;
    const HopperSlotInfo<GPU, CONFIG> info{gpu, args.forward};
    tiles.ForEach([](const HopperWork&, int32_t) {},
                  [&](const HopperWork& work, int32_t tile, bool masked) {
                    AwaitRoom(ring);
                    gpu.SyncWarp();
                    info.Put(work, tile, masked, ring.stage());
                    gpu.SyncWarp();
                    if (gpu.Thread() % 32 == 0)
                      gpu.Arrive(CONFIG::BarrierAt(kOthersCame, ring.stage()));
                    ring.Next();
                  },
                  [](const HopperWork&) {});
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_PRODUCER_INL_H_
