#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_

#include "worker/kernel/cuda/hopper_consumer.h"
#include "worker/kernel/cuda/hopper_producer.h"

namespace annulus::cuda {

// One block of threads: takes items until none is left, and brings the slots of each up to date
// with all of its tasks.
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
  // A ring that so many fill and so many read.
  ANNULUS_GPU void MakeRing(HopperBarrier came, HopperBarrier read, int stages, int fill,
                            int readers) const {
    for (int stage = 0; stage < stages; ++stage) {
      gpu.MakeBarrier(CONFIG::BarrierAt(came, stage), fill);
      gpu.MakeBarrier(CONFIG::BarrierAt(read, stage), readers);
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_BLOCK_H_
