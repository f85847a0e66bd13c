#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_ITEMS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_ITEMS_H_

#include "worker/kernel/cuda/hopper_config.h"

namespace annulus::cuda {

// Which items a block does, one after the other: its own number's, then whichever comes next of
// those that no block has taken. One thread takes them, and tells the others through a ring.
template <class GPU, class CONFIG>
struct HopperItems {
  GPU& gpu;
  const ForwardArgs& args;
  typename CONFIG::ItemRing ring = {};

  // For the one thread: takes an item and tells of it.
  ANNULUS_GPU const ForwardItem* Take(bool first, int64_t block) {
    // The count is the launch's own, of its tables: whoever uploads them sets it to 0.
    const int64_t number =
        first ? block : gpu.Blocks() + gpu.CountUp(args.tables + args.at.next_item);
    gpu.AwaitBarrier(CONFIG::BarrierAt(kItemRead, ring.stage()), ring.parity() ^ 1);
    gpu.template StoreShared<int32_t>(CONFIG::ItemAt(ring.stage()), static_cast<int32_t>(number));
    gpu.Arrive(CONFIG::BarrierAt(kItemCame, ring.stage()));
    ring.Next();
    return ItemOf(number);
  }

  // For the warps of the others: the next that was taken; nullptr behind the last.
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

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_ITEMS_H_
