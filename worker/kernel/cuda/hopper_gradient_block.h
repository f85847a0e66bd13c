#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_BLOCK_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_BLOCK_H_

#include "worker/kernel/cuda/hopper_gradient_consumer.h"

namespace annulus::cuda {

// One block of threads: brings the accumulators of an item up to date with all of its tasks.
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
  // Of tiles of slots that groups do not fill: products read them all the same.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_BLOCK_H_
