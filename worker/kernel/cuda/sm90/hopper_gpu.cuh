#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GPU_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GPU_CUH_

#include <cstdint>

#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm80/ptx_gpu.cuh"

namespace annulus::cuda {

// wgmma.mma_async of 64 × COLUMNS × 16: one instruction each. `add`: adds to the sums; otherwise
// starts from 0.

#define ANNULUS_8(d, i)                                                                           \
  "+f"((d)[(i)]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]), "+f"((d)[(i) + 4]), \
      "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define ANNULUS_32(d, i) \
  ANNULUS_8(d, i), ANNULUS_8(d, (i) + 8), ANNULUS_8(d, (i) + 16), ANNULUS_8(d, (i) + 24)
#define ANNULUS_48(d, i) ANNULUS_32(d, i), ANNULUS_8(d, (i) + 32), ANNULUS_8(d, (i) + 40)
#define ANNULUS_64(d, i) ANNULUS_32(d, i), ANNULUS_32(d, (i) + 32)
#define ANNULUS_REGISTERS_32                                \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define ANNULUS_REGISTERS_48                                         \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"          \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}"
#define ANNULUS_REGISTERS_64                                         \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"          \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

#define ANNULUS_WGMMA_ROWS(TYPE, COLUMNS, COUNT, A, B, ADD)                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                               \
               ", 0;\n"                                                              \
               "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE \
               " " ANNULUS_REGISTERS_##COUNT ", " A ", " B ", p, 1, 1, 0, 0;\n}\n"   \
               : ANNULUS_##COUNT(sums, 0)                                            \
               : "l"(a), "l"(b), "r"(add ? 1 : 0)                                    \
               : "memory")
#define ANNULUS_WGMMA_COLUMNS(TYPE, COLUMNS, COUNT, A, B, ADD)                        \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD                                \
               ", 0;\n"                                                               \
               "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE  \
               " " ANNULUS_REGISTERS_##COUNT ", {" A "}, " B ", p, 1, 1, 1;\n}\n"     \
               : ANNULUS_##COUNT(sums, 0)                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0) \
               : "memory")

// Both operands in shared memory, with rows along the sum.
template <Element ELEMENT, int COLUMNS>
__device__ __forceinline__ void WgmmaRows(uint64_t a, uint64_t b, float (&sums)[COLUMNS / 2],
                                          bool add) {
  constexpr bool kBf16 = ELEMENT == Element::kBf16;
  static_assert(COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 128);
  if constexpr (COLUMNS == 64) {
    if constexpr (kBf16)
      ANNULUS_WGMMA_ROWS("bf16", 64, 32, "%32", "%33", "%34");
    else
      ANNULUS_WGMMA_ROWS("f16", 64, 32, "%32", "%33", "%34");
  } else if constexpr (COLUMNS == 96) {
    if constexpr (kBf16)
      ANNULUS_WGMMA_ROWS("bf16", 96, 48, "%48", "%49", "%50");
    else
      ANNULUS_WGMMA_ROWS("f16", 96, 48, "%48", "%49", "%50");
  } else {
    if constexpr (kBf16)
      ANNULUS_WGMMA_ROWS("bf16", 128, 64, "%64", "%65", "%66");
    else
      ANNULUS_WGMMA_ROWS("f16", 128, 64, "%64", "%65", "%66");
  }
}

// The left operand in registers; the right one's columns run along the sum.
template <Element ELEMENT, int COLUMNS>
__device__ __forceinline__ void WgmmaColumns(const uint32_t (&a)[4], uint64_t b,
                                             float (&sums)[COLUMNS / 2], bool add) {
  constexpr bool kBf16 = ELEMENT == Element::kBf16;
  static_assert(COLUMNS == 64 || COLUMNS == 128);
  if constexpr (COLUMNS == 64) {
    if constexpr (kBf16)
      ANNULUS_WGMMA_COLUMNS("bf16", 64, 32, "%32,%33,%34,%35", "%36", "%37");
    else
      ANNULUS_WGMMA_COLUMNS("f16", 64, 32, "%32,%33,%34,%35", "%36", "%37");
  } else {
    if constexpr (kBf16)
      ANNULUS_WGMMA_COLUMNS("bf16", 128, 64, "%64,%65,%66,%67", "%68", "%69");
    else
      ANNULUS_WGMMA_COLUMNS("f16", 128, 64, "%64,%65,%66,%67", "%68", "%69");
  }
}

#undef ANNULUS_WGMMA_COLUMNS
#undef ANNULUS_WGMMA_ROWS
#undef ANNULUS_REGISTERS_64
#undef ANNULUS_REGISTERS_48
#undef ANNULUS_REGISTERS_32
#undef ANNULUS_64
#undef ANNULUS_48
#undef ANNULUS_32
#undef ANNULUS_8

// The matrix products of a thread's warp group on sm_90a.
struct PtxHopperProducts : PtxGpu {
  // Products of a warp group; hopper_config.h makes descriptors of offsets. Pass all registers of
  // the products to FenceProducts first. From there until a wait for the products, touch neither
  // these registers nor the shared memory that the products read. Products complete in order.
  ANNULUS_GPU uint64_t Descriptor(uint64_t of_offset) const {
    return Further(of_offset, SharedAddress(0));
  }
  template <class... REGISTERS>
  ANNULUS_GPU void FenceProducts(REGISTERS&... registers) const {
    (Hold(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
  }
  template <Element ELEMENT, int COLUMNS>
  ANNULUS_GPU void MultiplyRows(uint64_t a, uint64_t b, float (&sums)[COLUMNS / 2],
                                bool add) const {
    WgmmaRows<ELEMENT, COLUMNS>(a, b, sums, add);
  }
  template <Element ELEMENT, int COLUMNS>
  ANNULUS_GPU void MultiplyColumns(const uint32_t (&a)[4], uint64_t b, float (&sums)[COLUMNS / 2],
                                   bool add) const {
    WgmmaColumns<ELEMENT, COLUMNS>(a, b, sums, add);
  }
  ANNULUS_GPU void CommitProducts() const {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
  }
  // Waits for all committed products, except those of the last BUT commits. `registers` are those
  // of the products.
  template <int BUT, class... REGISTERS>
  ANNULUS_GPU void AwaitProductsBut(REGISTERS&... registers) const {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(BUT) : "memory");
    (Hold(registers), ...);
  }
  template <class... REGISTERS>
  ANNULUS_GPU void AwaitProducts(REGISTERS&... registers) const {
    AwaitProductsBut<0>(registers...);
  }
  // Keeps the computation of `values` before the code that follows. ptxas would otherwise move a
  // wait for products ahead of arithmetic that should overlap them; it does not move one across a
  // branch. The branch is never taken: arithmetic makes no NaN other than 0x7fffffff.
  ANNULUS_GPU void Finish(const float (&values)[2]) const {
    ANNULUS_UNROLL
    for (int i = 0; i < 2; ++i)
      asm volatile(
          "{\n.reg .pred p;\nsetp.eq.u32 p, %0, 0xffffffff;\n@p st.shared.u32 [%1], %0;\n}\n" ::"r"(
              BitsAs<uint32_t>(values[i])),
          "r"(SharedAddress(0))
          : "memory");
  }

 private:
  // The compiler moves no access to these registers across this point.
  template <int COUNT>
  ANNULUS_GPU static void Hold(float (&registers)[COUNT]) {
    ANNULUS_UNROLL
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(registers[i])::"memory");
  }
  template <int COUNT>
  ANNULUS_GPU static void Hold(uint32_t (&registers)[COUNT][4]) {
    ANNULUS_UNROLL
    for (int i = 0; i < COUNT * 4; ++i) asm volatile("" : "+r"(registers[i / 4][i % 4])::"memory");
  }
};

// The GPU interface (gpu_code.h) of a thread of sm_90a. Asynchronous members say when they
// complete.
struct PtxHopperGpu : PtxHopperProducts {
  // Returns `value`, but opaque to the compiler, so that it precomputes nothing from it.
  ANNULUS_GPU int Anew(int value) const {
    asm volatile("" : "+r"(value));
    return value;
  }

  // Returns `value`, which all lanes of the warp must share: the compiler keeps it in a uniform
  // register.
  ANNULUS_GPU int Uniform(int value) const { return __shfl_sync(0xffffffffu, value, 0); }

  ANNULUS_GPU int64_t Blocks() const { return gridDim.x; }
  // Increments an int32 in global memory that all blocks share, and returns its old value.
  ANNULUS_GPU int32_t CountUp(const void* at) const {
    return atomicAdd(static_cast<int32_t*>(const_cast<void*>(at)), 1);
  }

  // Makes a barrier in shared memory, for phases of `arrivals` each. Other threads may use it after
  // its maker has called FenceBarriers and synchronised with them.
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
  // Arrives, and lets the phase end only after `bytes` more bytes have arrived.
  ANNULUS_GPU void ArriveExpecting(uint32_t at, uint32_t bytes) const {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(at)),
        "r"(bytes)
        : "memory");
  }
  // Waits until the phase with this parity is over. The phase before the first counts as odd and
  // over. A phase that does not end becomes a device error after seconds, so the GPU does not hang.
  // Lanes of a warp may return at different times.
  ANNULUS_GPU void AwaitBarrier(uint32_t at, uint32_t parity) const {
    // One asm block, so that it takes no more registers than the producer has.
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

  // Call before the use of a map in global memory that the host has written.
  ANNULUS_GPU void AcquireMap(const void* map) const {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;\n" ::"l"(map) : "memory");
  }
  // Loads a box of a tensor of (columns, heads, rows) by TMA, with zeros outside the tensor, and
  // signals the barrier.
  ANNULUS_GPU void LoadBox(uint32_t to, const void* map, int32_t column, int32_t head, int32_t row,
                           uint32_t barrier) const {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];\n" ::"r"(SharedAddress(to)),
        "l"(map), "r"(column), "r"(head), "r"(row), "r"(SharedAddress(barrier))
        : "memory");
  }
  // Makes the thread's writes to shared memory visible to products that are ordered after this
  // call.
  ANNULUS_GPU void FenceAsync() const {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
  }

  // Barriers of a warp group.
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
  // A barrier of the two consumer groups.
  ANNULUS_GPU void SyncConsumers() const {
    asm volatile("bar.sync %0, %1;\n" ::"n"(kConsumersBarrier), "n"(2 * kGroupThreads) : "memory");
  }
  // Two groups take turns. A group has the turn from AwaitTurn to its PassTurn; the other's
  // AwaitTurn does not return before that. Both pass their own group number. To give one group the
  // first turn, the other calls PassTurn first.
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
  // Lower numbers are the barriers of the block and the groups.
  static constexpr int kTurnBarrier = 3;
  static constexpr int kConsumersBarrier = 5;
  // In units of 2^32 clocks, about two seconds each. The PTX ISA does not say how long one try_wait
  // waits.
  static constexpr uint32_t kTurnsOfHang = 4;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GPU_CUH_
