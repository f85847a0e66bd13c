#include "tests/kernel/cuda/warp_acts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/dtype.h"

namespace annulus::cuda {
namespace {

template <class ARGS>
ARGS& Of(void* lane) {
  return *static_cast<ARGS*>(lane);
}

float Half(uint16_t bits) {
  static const std::vector<float>* const kAll = [] {
    auto* all = new std::vector<float>(1 << 16);
    for (int i = 0; i < 1 << 16; ++i) (*all)[i] = Fp16ToFp32(static_cast<uint16_t>(i));
    return all;
  }();
  return (*kAll)[bits];
}

constexpr int kProductsAtOnce = 8;

// Towards zero.
float CutOff(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::fabs(static_cast<double>(nearest)) <= std::fabs(value) || std::isinf(value))
    return nearest;
  return std::nextafter(nearest, 0.0f);
}

// A tensor core's sum of c and some products: each is cut off, towards zero, at the last bit that
// it keeps of the largest.
float SumCutOff(float c, const double* products, int count) {
  constexpr int kBits = 24;  // Behind the first: fp32's 23 and one more.
  double largest = std::fabs(c), sum = c;
  for (int k = 0; k < count; ++k) {
    largest = std::max(largest, std::fabs(products[k]));
    sum += products[k];
  }
  if (largest == 0 || !std::isfinite(sum)) return CutOff(sum);
  const double unit = std::ldexp(1.0, std::ilogb(largest) - kBits), per_unit = 1 / unit;
  auto units = static_cast<int64_t>(c * per_unit);
  for (int k = 0; k < count; ++k) units += static_cast<int64_t>(products[k] * per_unit);
  return CutOff(static_cast<double>(units) * unit);
}

template <float (*TO_FLOAT)(uint16_t)>
void Mma(void* const (&lanes)[kWarp]) {
  double a[16][16], b[16][8];
  const auto element = [](uint32_t word, int half) {
    return static_cast<double>(TO_FLOAT(static_cast<uint16_t>(word >> (16 * half))));
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const MmaArgs& args = Of<MmaArgs>(lanes[lane]);
    const int group = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        a[group + i % 2 * 8][column + half + i / 2 * 8] = element(args.a[i], half);
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half)
        b[column + half + i * 8][group] = element(args.b[i], half);
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    float* const c = Of<MmaArgs>(lanes[lane]).c;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double products[16];
      for (int k = 0; k < 16; ++k) products[k] = a[row][k] * b[k][column];
      for (int k = 0; k < 16; k += kProductsAtOnce)
        c[i] = SumCutOff(c[i], products + k, kProductsAtOnce);
    }
  }
}

template <bool TRANSPOSED>
void LoadMatrices(void* const (&lanes)[kWarp]) {
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int row = TRANSPOSED ? lane % 4 * 2 + i : lane / 4;
        const int column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + i;
        std::memcpy(&pair[i], Of<MatrixArgs>(lanes[matrix * 8 + row]).row + column * 2, 2);
      }
      Of<MatrixArgs>(lanes[lane]).out[matrix] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
  }
}

}  // namespace

void ActShuffleXor(void* const (&lanes)[kWarp]) {
  for (int lane = 0; lane < kWarp; ++lane) {
    ShuffleArgs& mine = Of<ShuffleArgs>(lanes[lane]);
    std::memcpy(mine.out, Of<ShuffleArgs>(lanes[lane ^ mine.xor_lanes]).in, sizeof(mine.out));
  }
}

void ActLoadMatrices(void* const (&lanes)[kWarp]) { LoadMatrices<false>(lanes); }
void ActLoadMatricesTransposed(void* const (&lanes)[kWarp]) { LoadMatrices<true>(lanes); }
void ActMmaBf16(void* const (&lanes)[kWarp]) { Mma<Bf16ToFp32>(lanes); }
void ActMmaFp16(void* const (&lanes)[kWarp]) { Mma<Half>(lanes); }

float ApproximateExp2(float t) {
  if (t == 0) return 1;
  if (std::isnan(t)) return t;
  uint32_t bits;
  std::memcpy(&bits, &t, 4);
  const double off = (bits * 2654435761u >> 31) != 0 ? 1.6e-7 : -1.6e-7;
  const auto value = static_cast<float>(std::exp2(static_cast<double>(t)) * (1 + off));
  return value < std::numeric_limits<float>::min() ? 0.0f : value;
}

}  // namespace annulus::cuda
