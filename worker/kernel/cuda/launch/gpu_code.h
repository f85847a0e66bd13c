#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GPU_CODE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GPU_CODE_H_

#include <cstdint>
#include <cstring>

// The kernels are templates over GPU: the interface of a thread to its device. GPU is PtxGpu
// (ptx_gpu.cuh) when nvcc compiles them, and the tests' emulator when g++ does. The compilers must
// not contract a·b + c: code that wants a fused operation calls Fma. So all instantiations give the
// same bits.
#ifdef __CUDACC__
#define ANNULUS_GPU __device__ __forceinline__
#define ANNULUS_UNROLL _Pragma("unroll")
#define ANNULUS_UNROLL_BY_4 _Pragma("unroll 4")
#define ANNULUS_NO_UNROLL _Pragma("unroll 1")
#else
#define ANNULUS_GPU inline
#define ANNULUS_UNROLL
#define ANNULUS_UNROLL_BY_4
#define ANNULUS_NO_UNROLL
#endif

namespace annulus::cuda {

template <class TO, class FROM>
ANNULUS_GPU TO BitsAs(const FROM& from) {
  static_assert(sizeof(TO) == sizeof(FROM));
  TO to;
  memcpy(&to, &from, sizeof(TO));
  return to;
}

// Sixteen bytes that move as one.
struct Chunk {
  alignas(16) uint32_t word[4];
};
struct TwoFloats {
  alignas(8) float value[2];
};
struct FourFloats {
  alignas(16) float value[4];
};

template <class T>
ANNULUS_GPU T Least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
ANNULUS_GPU T Most(T a, T b) {
  return a < b ? b : a;
}

ANNULUS_GPU float Infinity() { return BitsAs<float>(0x7f800000u); }
ANNULUS_GPU float LowestFloat() { return BitsAs<float>(0xff7fffffu); }
ANNULUS_GPU bool IsFinite(float value) { return (BitsAs<uint32_t>(value) << 1) < 0xff000000u; }

inline constexpr float kLog2e = 1.44269504088896340736f;

// 2^t for t <= about 0. Exactly 1 at 0, exactly 0 at −infinity; NaN stays NaN. Relative error 3e-8.
// Same as in tile_softmax-inl.h.
template <class GPU>
ANNULUS_GPU float Exp2(float t) {
  constexpr float kMagic = 12582912.0f + 127.0f;
  t = -127.0f > t ? -127.0f : t;
  const float biased = t + kMagic;
  const float f = t - (biased - kMagic);
  float p = 1.559467782e-04f;
  p = GPU::Fma(p, f, 1.340664341e-03f);
  p = GPU::Fma(p, f, 9.617692791e-03f);
  p = GPU::Fma(p, f, 5.550310388e-02f);
  p = GPU::Fma(p, f, 2.402265221e-01f);
  p = GPU::Fma(p, f, 6.931472421e-01f);
  p = GPU::Fma(p, f, 1.0f);
  return p * BitsAs<float>(BitsAs<uint32_t>(biased) << 23);
}

// Error at most 2 ulp everywhere; odd to the bit; ±1 at ±infinity; NaN stays NaN. Same as in
// score_modifiers-inl.h.
template <class GPU>
ANNULUS_GPU float Tanh(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float e = Exp2<GPU>(magnitude * (-2 * kLog2e));
  const float far = 1.0f - (e + e) / (1.0f + e);
  const float square = x * x;
  float p = -5.70498872745e-3f;
  p = GPU::Fma(p, square, 2.06390887954e-2f);
  p = GPU::Fma(p, square, -5.37397155531e-2f);
  p = GPU::Fma(p, square, 1.33314422036e-1f);
  p = GPU::Fma(p, square, -3.33332819422e-1f);
  const float near = GPU::Fma(p * square, x, x);
  return magnitude < 0.625f ? near : x < 0 ? -far : far;
}

// Philox4x32-10 of (counter, row[0], row[1], row[2]) with key `seed` (attention/numerics/philox.h).
ANNULUS_GPU void Philox(uint32_t counter, const uint32_t (&row)[3], const uint32_t (&seed)[2],
                        uint32_t (&words)[4]) {
  words[0] = counter;
  for (int w = 0; w < 3; ++w) words[w + 1] = row[w];
  uint32_t key0 = seed[0], key1 = seed[1];
  ANNULUS_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * words[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * words[2];
    words[0] = static_cast<uint32_t>(b >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(b);
    words[2] = static_cast<uint32_t>(a >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_GPU_CODE_H_
