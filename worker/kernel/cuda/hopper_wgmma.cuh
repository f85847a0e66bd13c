#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_WGMMA_CUH_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_WGMMA_CUH_

#include <cstdint>

#include "worker/kernel/cuda/forward_args.h"

namespace annulus::cuda {

// wgmma.mma_async of 64 × COLUMNS × 16: one instruction each. `add`: to what is there, else to 0.

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

// Both sides in shared memory, their rows along the sum.
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

// The left side in registers, the columns of the right one along the sum.
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

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_WGMMA_CUH_
