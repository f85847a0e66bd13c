#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_PRODUCTS_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_PRODUCTS_CUH_

#include "worker/kernel/cuda/hopper_wgmma.cuh"
#include "worker/kernel/cuda/ptx_gpu.cuh"

namespace annulus::cuda {

// What a thread of sm_90a does of the products of its group.
struct PtxHopperProducts : PtxGpu {
  // Products of a group (hopper_layout.h makes descriptors of offsets). Between FenceProducts, to
  // which all their registers are given, and a wait for them nobody touches these, nor what they
  // read in shared memory. They are done in order.
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
  // All that are committed, but those of the last BUT commits. `registers` are theirs.
  template <int BUT, class... REGISTERS>
  ANNULUS_GPU void AwaitProductsBut(REGISTERS&... registers) const {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(BUT) : "memory");
    (Hold(registers), ...);
  }
  template <class... REGISTERS>
  ANNULUS_GPU void AwaitProducts(REGISTERS&... registers) const {
    AwaitProductsBut<0>(registers...);
  }
  // Whatever makes these is done before what comes next: ptxas would move a wait for products
  // before arithmetic that should run beside them, but not over a branch. The branch is never
  // taken, because arithmetic makes no NaN but 0x7fffffff.
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
  // Nothing moves these registers from one side to the other.
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

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_PRODUCTS_CUH_
