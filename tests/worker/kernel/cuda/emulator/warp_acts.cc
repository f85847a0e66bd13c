#include "tests/worker/kernel/cuda/emulator/warp_acts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "attention/spec/dtype.h"
#include "tests/worker/kernel/cuda/emulator/tensor_core_sum.h"

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
constexpr int kBits = 24;  // Bits kept after the first bit of the largest: fp32's 23 and one more.

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
      for (int from = 0; from < 16; from += kProductsAtOnce) {
        double products[kProductsAtOnce];
        for (int k = 0; k < kProductsAtOnce; ++k)
          products[k] = a[row][from + k] * b[from + k][column];
        c[i] = SumCutOff<kBits>(c[i], products);
      }
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

void ActSame(void* const (&lanes)[kWarp]) {
  const int first = Of<SameArgs>(lanes[0]).value;
  const bool same = std::all_of(std::begin(lanes), std::end(lanes),
                                [&](void* lane) { return Of<SameArgs>(lane).value == first; });
  for (void* const lane : lanes) Of<SameArgs>(lane).same = same;
}

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
