#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GPU_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GPU_CUH_

#include "worker/kernel/cuda/hopper_config.h"
#include "worker/kernel/cuda/hopper_products.cuh"

namespace annulus::cuda {

// A thread of sm_90a. What is asynchronous here says until when.
struct PtxHopperGpu : PtxHopperProducts {
  // The same number, which the compiler takes for another: nothing is made of it beforehand.
  ANNULUS_GPU int Anew(int value) const {
    asm volatile("" : "+r"(value));
    return value;
  }

  // The same number, which the whole warp has: the compiler keeps it in a register of the warp.
  ANNULUS_GPU int Uniform(int value) const { return __shfl_sync(0xffffffffu, value, 0); }

  ANNULUS_GPU int64_t Blocks() const { return gridDim.x; }
  // Adds one to an int32 in global memory that all blocks count up, and returns what it was.
  ANNULUS_GPU int32_t CountUp(const void* at) const {
    return atomicAdd(static_cast<int32_t*>(const_cast<void*>(at)), 1);
  }

  // A barrier in shared memory, for phases of `arrivals` each; others may use it when its maker has
  // fenced and met them.
  ANNULUS_GPU void MakeBarrier(uint32_t at, int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(at)), "r"(arrivals)
                 : "memory");
  }
  ANNULUS_GPU void FenceBarriers() const {
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  ANNULUS_GPU void Arrive(uint32_t at) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(SharedAddress(at)) : "memory");
  }
  // The phase ends when as many bytes have come, too.
  ANNULUS_GPU void ArriveExpecting(uint32_t at, uint32_t bytes) const {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(at)),
        "r"(bytes)
        : "memory");
  }
  // Until the phase with this parity is over; the one before the first counts as odd and over. A
  // phase that does not end is a fault of the device, seconds later, not a GPU that hangs. Lanes of
  // a warp may return one after the other.
  ANNULUS_GPU void AwaitBarrier(uint32_t at, uint32_t parity) const {
    // One piece of PTX, which takes no register that the producer does not have.
    asm volatile(
        "{\n.reg .pred p;\n.reg .u32 begin, now;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra OVER;\n"
        "mov.u32 begin, %%clock_hi;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra OVER;\n"
        "mov.u32 now, %%clock_hi;\n"
        "sub.u32 now, now, begin;\n"
        "setp.lt.u32 p, now, %2;\n"
        "@p bra AGAIN;\n"
        "trap;\n"
        "OVER:\n}\n" ::"r"(SharedAddress(at)),
        "r"(parity), "n"(kTurnsOfHang)
        : "memory");
  }

  // Whoever uses a map in global memory that the host has written asks for it first.
  ANNULUS_GPU void AcquireMap(const void* map) const {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;\n" ::"l"(map) : "memory");
  }
  // Brings a box of a tensor of (columns, heads, rows), zeros where there is none, and tells the
  // barrier.
  ANNULUS_GPU void LoadBox(uint32_t to, const void* map, int32_t column, int32_t head, int32_t row,
                           uint32_t barrier) const {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];\n" ::"r"(SharedAddress(to)),
        "l"(map), "r"(column), "r"(head), "r"(row), "r"(SharedAddress(barrier))
        : "memory");
  }
  // What the thread has written to shared memory may be read by products, once they are ordered
  // behind it.
  ANNULUS_GPU void FenceAsync() const {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  }

  // Groups of four warps.
  ANNULUS_GPU void SyncGroup(int barrier) const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "n"(kGroupThreads) : "memory");
  }
  ANNULUS_GPU bool SyncGroupOr(int barrier, bool value) const {
    uint32_t any;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 q, %1, 0;\nbar.red.or.pred p, %2, %3, q;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(any)
        : "r"(value ? 1 : 0), "r"(barrier), "n"(kGroupThreads)
        : "memory");
    return any != 0;
  }
  // The two groups that multiply.
  ANNULUS_GPU void SyncConsumers() const {
    asm volatile("bar.sync %0, %1;\n" ::"n"(kConsumersBarrier), "n"(2 * kGroupThreads) : "memory");
  }
  // Two groups take turns: whoever has called AwaitTurn has the turn until it calls PassTurn, and
  // the other's AwaitTurn returns no sooner. Both name their own group; PassTurn of one stands for
  // the first turn of the other.
  ANNULUS_GPU void AwaitTurn(int group) const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(kTurnBarrier + group), "n"(2 * kGroupThreads)
                 : "memory");
  }
  ANNULUS_GPU void PassTurn(int group) const {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(kTurnBarrier + (group ^ 1)), "n"(2 * kGroupThreads)
                 : "memory");
  }
  template <int REGISTERS>
  ANNULUS_GPU void ReleaseRegisters() const {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
  }
  template <int REGISTERS>
  ANNULUS_GPU void TakeRegisters() const {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
  }

 private:
  static constexpr int kTurnBarrier = 3;  // Those before are the block's and the groups'.
  static constexpr int kConsumersBarrier = 5;
  // Of 2^32 clocks, about two seconds each: how long one try_wait waits the PTX ISA leaves open.
  static constexpr uint32_t kTurnsOfHang = 4;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GPU_CUH_
