#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_PTX_GPU_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_PTX_GPU_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

extern __shared__ __align__(1024) unsigned char g_shared[];

// The GPU interface (gpu_code.h) of a real device, from sm_80 on: each member is one or two PTX
// instructions. Addresses in shared memory are offsets from its start. All threads of a warp must
// call its collective members together (shuffles, matrices, products).
struct PtxGpu {
  ANNULUS_GPU int Thread() const { return static_cast<int>(threadIdx.x); }

  // Global memory; the address must be aligned to sizeof(T).
  template <class T>
  ANNULUS_GPU T Load(const void* from) const {
    return *static_cast<const T*>(from);
  }
  template <class T>
  ANNULUS_GPU void Store(void* to, T value) const {
    *static_cast<T*>(to) = value;
  }
  template <class T>
  ANNULUS_GPU T LoadShared(uint32_t at) const {
    return *reinterpret_cast<const T*>(g_shared + at);
  }
  template <class T>
  ANNULUS_GPU void StoreShared(uint32_t at, T value) const {
    *reinterpret_cast<T*>(g_shared + at) = value;
  }

  // Copies 16 bytes asynchronously, or writes zeros if !there. The copy belongs to the next
  // CommitCopies. WaitCopies waits for this thread's commits, all but the last PENDING.
  ANNULUS_GPU void CopyChunkLater(uint32_t to, const void* from, bool there) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
  }
  ANNULUS_GPU void CommitCopies() const { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
  template <int PENDING>
  ANNULUS_GPU void WaitCopies() const {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
  }

  ANNULUS_GPU void Sync() const { __syncthreads(); }
  ANNULUS_GPU bool SyncOr(bool value) const { return __syncthreads_or(value ? 1 : 0) != 0; }
  ANNULUS_GPU void SyncWarp() const { __syncwarp(); }
  template <class T>
  ANNULUS_GPU T ShuffleXor(T value, int lanes) const {
    return __shfl_xor_sync(0xffffffffu, value, lanes);
  }

  // Loads four 8 × 8 matrices of 16-bit elements. Lane 8·i + r gives the address of row r of matrix
  // i.
  ANNULUS_GPU void LoadMatrices(uint32_t at, uint32_t (&m)[4]) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(SharedAddress(at))
                 : "memory");
  }
  ANNULUS_GPU void LoadMatricesTransposed(uint32_t at, uint32_t (&m)[4]) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(SharedAddress(at))
                 : "memory");
  }
  // c += a · b, 16 × 16 by 16 × 8.
  template <Element ELEMENT>
  ANNULUS_GPU void Mma(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) const {
    if constexpr (ELEMENT == Element::kBf16) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }

  // If one is NaN, returns the other.
  ANNULUS_GPU static float Max(float a, float b) { return fmaxf(a, b); }
  ANNULUS_GPU static float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  // Relative error below 2^-22; exactly 1 at 0, 0 at −infinity.
  ANNULUS_GPU static float Exp2Nearly(float t) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(value) : "f"(t));
    return value;
  }
  ANNULUS_GPU static float Exp(float x) { return expf(x); }
  ANNULUS_GPU static float Log(float x) { return logf(x); }
  ANNULUS_GPU static double LogDouble(double x) { return log(x); }
  ANNULUS_GPU static double ExpDouble(double x) { return exp(x); }

  // Rounds to nearest, ties to even; `low` goes to the low half.
  template <Element ELEMENT>
  ANNULUS_GPU static uint32_t Pack(float low, float high) {
    if constexpr (ELEMENT == Element::kBf16)
      return BitsAs<uint32_t>(__floats2bfloat162_rn(low, high));
    return BitsAs<uint32_t>(__floats2half2_rn(low, high));
  }
  template <Element ELEMENT>
  ANNULUS_GPU static float ToFloat(uint16_t bits) {
    if constexpr (ELEMENT == Element::kBf16)
      return BitsAs<float>(static_cast<uint32_t>(bits) << 16);
    return __half2float(__ushort_as_half(bits));
  }

 protected:
  ANNULUS_GPU static uint32_t SharedAddress(uint32_t at) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(g_shared)) + at;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_PTX_GPU_CUH_
