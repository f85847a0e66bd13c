#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_GENERIC_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_GENERIC_INL_H_

#include <cstdint>
#include <cstring>

#include "attention/spec/dtype.h"
#include "worker/kernel/cpu/isa/philox_words-inl.h"

namespace annulus {
namespace {

// A vector type for tile_functions-inl.h from the compiler's own vectors: any CPU, any width. The
// portable path uses it at the width of the baseline. Tests use it at the width of AVX-512, to run
// that path's loops on any CPU.
template <int LANES, int PANEL_VECTORS>
struct GenericVector {
  typedef float F __attribute__((vector_size(LANES * 4)));
  typedef int32_t I __attribute__((vector_size(LANES * 4)));
  static constexpr int kLanes = LANES;
  static constexpr int kDotRun = 32;
  static constexpr int kPanelVectors = PANEL_VECTORS;

  static F Zero() { return F{}; }
  static F Set(float v) { return F{} + v; }
  static F Load(const float* at) {
    F v;
    std::memcpy(&v, at, sizeof(v));
    return v;
  }
  static void Store(float* at, F v) { std::memcpy(at, &v, sizeof(v)); }
  static F LoadBf16(const std::byte* at) { return LoadHalf<&Bf16ToFp32>(at); }
  static F LoadFp16(const std::byte* at) { return LoadHalf<&Fp16ToFp32>(at); }
  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F Fma(F a, F b, F c) { return a * b + c; }
  static F AddTerm(F a, F b, F sum) { return Fma(a, b, sum); }
  static F Max(F a, F b) { return a > b ? a : b; }
  static F IfLess(F a, F b, F x, F y) { return a < b ? x : y; }
  static bool AnyLess(F a, F b) {
    float x[LANES], y[LANES];
    Store(x, a), Store(y, b);
    bool any = false;
    for (int i = 0; i < LANES; ++i) any = any || x[i] < y[i];
    return any;
  }
  static F Choose(uint32_t bits, F x, F y) {
    int32_t on[LANES];
    for (int i = 0; i < LANES; ++i) on[i] = (bits >> i & 1) != 0 ? -1 : 0;
    I mask;
    std::memcpy(&mask, on, sizeof(mask));
    return mask ? x : y;
  }
  static F Distance(int32_t n, const int32_t* at) {
    float lane[LANES];
    for (int i = 0; i < LANES; ++i) lane[i] = static_cast<float>(at[i] < n ? n - at[i] : at[i] - n);
    return Load(lane);
  }
  static uint32_t WordsBelow(const uint32_t* counters, const uint32_t* row, const PhiloxKeys& keys,
                             uint32_t threshold) {
    return WordsBelowOneByOne(counters, row, keys, threshold);
  }
  static F ShiftToExponent(F a) { return (F)((I)a << 23); }
  static void Transpose(F (&rows)[LANES]) {
    for (int i = 0; i < LANES; ++i)
      for (int j = 0; j < i; ++j) {
        const float upper = rows[j][i];
        rows[j][i] = rows[i][j];
        rows[i][j] = upper;
      }
  }

 private:
  template <float (*CONVERT)(uint16_t)>
  static F LoadHalf(const std::byte* at) {
    float lane[LANES];
    for (int i = 0; i < LANES; ++i) {
      uint16_t bits;
      std::memcpy(&bits, at + 2 * i, 2);
      lane[i] = CONVERT(bits);
    }
    return Load(lane);
  }
};

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_VECTOR_GENERIC_INL_H_
