// The emulator itself: matrices in registers as in the PTX ISA's tables, and a fault for each error
// that a device would not report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/emulated_gpu.h"

namespace annulus::cuda {
namespace {

using testing::HasSubstr;

class EmulatorTest : public testing::Test {
 protected:
  // Runs `body` as a block of threads with 1 KiB of shared memory. Returns the fault, or "".
  std::string Run(int threads, const std::function<void(const EmulatedGpu&)>& body) {
    EmulatedBlock block(threads, &memory_);
    return block.Run(7, 1024, [&](int thread) { body(EmulatedGpu{&block, thread}); });
  }

  GlobalMemory memory_;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", for .f16 and .bf16:
// element i of a lane's fragment.
struct Place {
  int row, column;
};
Place PlaceInA(int lane, int i) {
  const int group = lane >> 2, of_group = lane % 4;
  const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
  const int column = of_group * 2 + (i & 1);
  return {row, i < 4 ? column : column + 8};
}
Place PlaceInB(int lane, int i) {
  const int row = (lane % 4) * 2 + (i & 1);
  return {i < 2 ? row : row + 8, lane >> 2};
}
Place PlaceInC(int lane, int i) {
  const int group = lane >> 2;
  return {i < 2 ? group : group + 8, (lane % 4) * 2 + (i & 1)};
}

template <Element ELEMENT>
uint32_t PackOf(float low, float high) {
  const bool bf16 = ELEMENT == Element::kBf16;
  const uint32_t a = bf16 ? Fp32ToBf16(low) : Fp32ToFp16(low);
  const uint32_t b = bf16 ? Fp32ToBf16(high) : Fp32ToFp16(high);
  return a | b << 16;
}

template <Element ELEMENT>
void MultiplyAsTheTablesSay(
    const std::function<std::string(int, const std::function<void(const EmulatedGpu&)>&)>& run) {
  float a[16][16], b[16][8], c[16][8], d[16][8];
  std::mt19937 random(5);
  const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16); };
  for (auto& row : a)
    for (float& value : row) value = draw();
  for (auto& row : b)
    for (float& value : row) value = draw();
  for (auto& row : c)
    for (float& value : row) value = draw();
  const std::string fault = run(32, [&](const EmulatedGpu& gpu) {
    uint32_t left[4], right[2];
    float sums[4];
    const auto in_a = [&](int i) {
      const Place at = PlaceInA(gpu.Thread(), i);
      return a[at.row][at.column];
    };
    const auto in_b = [&](int i) {
      const Place at = PlaceInB(gpu.Thread(), i);
      return b[at.row][at.column];
    };
    for (int i = 0; i < 4; ++i) left[i] = PackOf<ELEMENT>(in_a(2 * i), in_a(2 * i + 1));
    for (int i = 0; i < 2; ++i) right[i] = PackOf<ELEMENT>(in_b(2 * i), in_b(2 * i + 1));
    for (int i = 0; i < 4; ++i) {
      const Place at = PlaceInC(gpu.Thread(), i);
      sums[i] = c[at.row][at.column];
    }
    gpu.Mma<ELEMENT>(left, right, sums);
    for (int i = 0; i < 4; ++i) {
      const Place at = PlaceInC(gpu.Thread(), i);
      d[at.row][at.column] = sums[i];
    }
  });
  ASSERT_EQ(fault, "");
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = c[row][column];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      EXPECT_EQ(d[row][column], sum) << row << " " << column;
    }
  }
}

TEST_F(EmulatorTest, FragmentsOfMmaAreThoseOfTheIsa) {
  const auto run = [this](int threads, const auto& body) { return Run(threads, body); };
  MultiplyAsTheTablesSay<Element::kBf16>(run);
  MultiplyAsTheTablesSay<Element::kFp16>(run);
}

// The only product is half an ulp, which rounding to the nearest even number would drop.
TEST_F(EmulatorTest, MmaCutsOffWhatFp32DoesNotHold) {
  float sums[32][4];
  ASSERT_EQ(Run(32,
                [&](const EmulatedGpu& gpu) {
                  const uint32_t one = PackOf<Element::kBf16>(1, 1);
                  const uint32_t tiny = PackOf<Element::kBf16>(std::ldexp(1.0f, -24), 0);
                  const uint32_t a[4] = {one, one, one, one};
                  const uint32_t b[2] = {gpu.Thread() % 4 == 0 ? tiny : 0, 0};
                  float(&c)[4] = sums[gpu.Thread()];
                  for (float& value : c) value = gpu.Thread() % 2 == 0 ? 1.99999988f : -1.99999988f;
                  gpu.Mma<Element::kBf16>(a, b, c);
                }),
            "");
  EXPECT_EQ(sums[0][0], 1.99999988f);
  EXPECT_GT(sums[1][0], -1.99999988f);
}

// Eight terms of 2^-25 are below the bits kept beside a 1, although their sum is not. Terms of
// 2^-24 are kept.
TEST_F(EmulatorTest, MmaCutsOffEachProduct) {
  for (const auto& [exponent, expected] :
       {std::pair(-25, 1.0f), std::pair(-24, 1 + std::ldexp(1.0f, -21))}) {
    float sums[32][4];
    ASSERT_EQ(Run(32,
                  [&](const EmulatedGpu& gpu) {
                    const uint32_t one = PackOf<Element::kBf16>(1, 1);
                    const float part = std::ldexp(1.0f, exponent);
                    const uint32_t parts = PackOf<Element::kBf16>(part, part);
                    const uint32_t a[4] = {one, one, one, one}, b[2] = {parts, 0};
                    float(&c)[4] = sums[gpu.Thread()];
                    for (float& value : c) value = 1;
                    gpu.Mma<Element::kBf16>(a, b, c);
                  }),
              "");
    EXPECT_EQ(sums[0][0], expected) << exponent;
  }
}

// PTX ISA, ldmatrix: each thread takes two neighbours of row lane / 4; transposed, of column lane /
// 4.
TEST_F(EmulatorTest, LdmatrixGivesRowsOrColumns) {
  for (const bool transposed : {false, true}) {
    uint32_t taken[32][4];
    ASSERT_EQ(Run(32,
                  [&](const EmulatedGpu& gpu) {
                    const int lane = gpu.Thread();
                    for (int word = 0; word < 4; ++word) {
                      const uint32_t first = lane * 256 + word * 2;
                      gpu.StoreShared<uint32_t>(lane * 16 + word * 4, first | (first + 1) << 16);
                    }
                    gpu.SyncWarp();
                    if (transposed)
                      gpu.LoadMatricesTransposed(lane * 16, taken[lane]);
                    else
                      gpu.LoadMatrices(lane * 16, taken[lane]);
                  }),
              "");
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        for (int i = 0; i < 2; ++i) {
          const int row = lane / 4, column = lane % 4 * 2 + i;
          const uint32_t expected =
              transposed ? (matrix * 8 + column) * 256 + row : (matrix * 8 + row) * 256 + column;
          EXPECT_EQ(taken[lane][matrix] >> (16 * i) & 0xffff, expected) << lane << " " << matrix;
        }
      }
    }
  }
}

TEST_F(EmulatorTest, ShufflesAndBarriersJoinThreads) {
  std::vector<float> sums(64);
  std::vector<int> any(64);
  ASSERT_EQ(Run(64,
                [&](const EmulatedGpu& gpu) {
                  auto value = static_cast<float>(gpu.Thread());
                  for (int lanes = 16; lanes > 0; lanes /= 2) value += gpu.ShuffleXor(value, lanes);
                  sums[gpu.Thread()] = value;
                  any[gpu.Thread()] = gpu.SyncOr(gpu.Thread() == 40) ? 1 : 0;
                  any[gpu.Thread()] += gpu.SyncOr(false) ? 2 : 0;
                }),
            "");
  EXPECT_THAT(any, testing::Each(1));
  for (int t = 0; t < 64; ++t) EXPECT_EQ(sums[t], t < 32 ? 496 : 1520);
}

TEST_F(EmulatorTest, CopiesComeWhenTheyAreWaitedFor) {
  alignas(16) const int numbers[4] = {1, 2, 3, 4};
  memory_.Add(reinterpret_cast<const std::byte*>(numbers), sizeof(numbers), false);
  std::vector<int> seen(32);
  ASSERT_EQ(Run(32,
                [&](const EmulatedGpu& gpu) {
                  if (gpu.Thread() < 2)
                    gpu.CopyChunkLater(gpu.Thread() * 16, numbers, gpu.Thread() == 0);
                  gpu.CommitCopies();
                  gpu.WaitCopies<0>();
                  gpu.Sync();
                  seen[gpu.Thread()] = gpu.LoadShared<int>(gpu.Thread() % 8 * 4);
                }),
            "");
  EXPECT_EQ(std::vector<int>(seen.begin(), seen.begin() + 8),
            (std::vector<int>{1, 2, 3, 4, 0, 0, 0, 0}));
}

struct Wrong {
  const char* fault;
  std::function<void(const EmulatedGpu&)> body;
};

TEST_F(EmulatorTest, FaultsOfSharedMemory) {
  const auto put = [](const EmulatedGpu& gpu, uint32_t at) { gpu.StoreShared<int>(at, 1); };
  const auto get = [](const EmulatedGpu& gpu, uint32_t at) { gpu.LoadShared<int>(at); };
  alignas(16) const int numbers[4] = {1, 2, 3, 4};
  memory_.Add(reinterpret_cast<const std::byte*>(numbers), sizeof(numbers), false);
  const std::vector<Wrong> all = {
      {"uninitialised", [&](const EmulatedGpu& gpu) { get(gpu, 8); }},
      {"misaligned shared", [&](const EmulatedGpu& gpu) { put(gpu, 2); }},
      {"past the end", [&](const EmulatedGpu& gpu) { put(gpu, 1024); }},
      {"read without a barrier",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() == 0) put(gpu, 0);
         gpu.SyncWarp();
         if (gpu.Thread() == 40) get(gpu, 0);  // Another warp.
       }},
      {"write without a barrier after a write", [&](const EmulatedGpu& gpu) { put(gpu, 0); }},
      {"write without a barrier after a read",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() == 0) put(gpu, 0);
         gpu.Sync();
         get(gpu, 0);
         gpu.SyncWarp();
         if (gpu.Thread() == 33) put(gpu, 0);
       }},
      {"a copy that is not waited for",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() == 0) gpu.CopyChunkLater(0, numbers, true);
         gpu.CommitCopies();
         gpu.WaitCopies<1>();
         gpu.Sync();
         get(gpu, 4);
       }},
      {" at 4 by",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() == 0) gpu.CopyChunkLater(0, numbers, true);
         gpu.CommitCopies();
         gpu.Sync();
         gpu.WaitCopies<0>();  // After the barrier.
         get(gpu, 4);
       }},
      {"write without a barrier after a read",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() == 0) put(gpu, 0);
         gpu.Sync();
         get(gpu, 0);
         if (gpu.Thread() == 0) gpu.CopyChunkLater(0, numbers, true);
       }},
      {"misaligned shared",
       [&](const EmulatedGpu& gpu) { gpu.CopyChunkLater(gpu.Thread() * 16 + 8, numbers, true); }},
  };
  for (const Wrong& wrong : all) EXPECT_THAT(Run(64, wrong.body), HasSubstr(wrong.fault));
}

TEST_F(EmulatorTest, FaultsOfGlobalMemory) {
  alignas(16) int given[16] = {}, taken[8] = {};
  memory_.Add(reinterpret_cast<const std::byte*>(given), 32, false);
  memory_.Add(reinterpret_cast<const std::byte*>(taken), sizeof(taken), true);
  const auto past = [](const int* at) { return reinterpret_cast<const std::byte*>(at) + 32; };
  const std::vector<Wrong> all = {
      {"out of range", [&](const EmulatedGpu& gpu) { gpu.Load<int>(past(given)); }},
      {"out of range", [&](const EmulatedGpu& gpu) { gpu.Store<int>(given, 1); }},
      {"misaligned", [&](const EmulatedGpu& gpu) { gpu.Load<int>(past(given) - 6); }},
      {"misaligned",
       [&](const EmulatedGpu& gpu) {
         gpu.CopyChunkLater(gpu.Thread() * 16, past(given) - 24, true);
       }},
      {"out of range",
       [&](const EmulatedGpu& gpu) { gpu.CopyChunkLater(gpu.Thread() * 16, past(given), true); }},
  };
  for (const Wrong& wrong : all) EXPECT_THAT(Run(32, wrong.body), HasSubstr(wrong.fault));
  EXPECT_EQ(memory_.Write(taken, 4, 1), "");
  EXPECT_EQ(memory_.Read(taken, 4, 1), "");
  EXPECT_THAT(memory_.Read(taken, 4, 2), HasSubstr("another block"));
  EXPECT_THAT(memory_.Write(taken, 4, 2), HasSubstr("another block"));
  memory_.NewLaunch();
  EXPECT_EQ(memory_.Read(taken, 4, 2), "");
  EXPECT_THAT(memory_.Write(taken, 4, 3), HasSubstr("another block"));
}

TEST_F(EmulatorTest, FaultsOfWhatThreadsDoTogether) {
  const std::vector<Wrong> all = {
      {"different things",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() < 16)
           gpu.ShuffleXor(1.0f, 1);
         else
           gpu.SyncWarp();
       }},
      {"different things",
       [&](const EmulatedGpu& gpu) { gpu.ShuffleXor(1.0f, gpu.Thread() < 16 ? 1 : 2); }},
      {"threads wait",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() != 5) gpu.ShuffleXor(1.0f, 1);
       }},
      {"threads wait",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() != 5) gpu.Sync();
       }},
      {"threads wait",
       [&](const EmulatedGpu& gpu) {
         if (gpu.Thread() < 32)
           gpu.Sync();
         else
           gpu.SyncWarp();
       }},
  };
  for (const Wrong& wrong : all) EXPECT_THAT(Run(64, wrong.body), HasSubstr(wrong.fault));
}

TEST(ApproximateExp2Test, IsOffByNoMoreThanTheIsaSays) {
  EXPECT_EQ(ApproximateExp2(0), 1.0f);
  EXPECT_EQ(ApproximateExp2(-INFINITY), 0.0f);
  EXPECT_TRUE(std::isnan(ApproximateExp2(NAN)));
  EXPECT_EQ(ApproximateExp2(-127), 0.0f);  // Flushed.
  double worst = 0;
  for (float t = -20; t < 0; t += 0.01f)
    worst = std::max(worst, std::fabs(ApproximateExp2(t) / std::exp2(static_cast<double>(t)) - 1));
  EXPECT_LT(worst, std::ldexp(1.0, -22));
  EXPECT_GT(worst, std::ldexp(1.0, -23));
}

}  // namespace
}  // namespace annulus::cuda
