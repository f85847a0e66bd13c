// The host functions of the sm_90a kernel.
#include <gtest/gtest.h>

#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

TEST(HopperLayoutTest, KeyBitsAreThoseOfTheKeys) {
  for (int first = 0; first < 8; first += 2) {
    for (int begin = -9; begin < 140; begin += 3) {
      for (int end = begin; end < 140; ++end) {
        uint32_t bits = 0;
        for (int i = 0; i < 32; ++i) {
          const int key = i / 2 * 8 + first + i % 2;
          if (key >= begin && key < end) bits |= uint32_t{1} << i;
        }
        ASSERT_EQ(KeyBits(begin, end, first), bits) << begin << " " << end << " " << first;
      }
    }
  }
}

TEST(HopperLayoutTest, ASwizzleIsItsOwnInverseAndKeepsRows) {
  for (uint32_t at = 0; at < 4096; at += 2) {
    EXPECT_EQ(Swizzle128(Swizzle128(at)), at);
    EXPECT_EQ(Swizzle128(at) / kPanelRowBytes, at / kPanelRowBytes);
    EXPECT_EQ(Swizzle128(at) % 16, at % 16);
  }
  EXPECT_EQ(Swizzle128(3 * 128 + 5 * 16), 3 * 128 + 6 * 16u);
}

// "Matrix Descriptor Format": bits 0–13 address, 16–29 leading, 32–45 stride, each without its last
// four bits; 62–63: 1, swizzling of 128 bytes.
TEST(HopperLayoutTest, DescriptorsAreAsTheIsaSays) {
  const uint64_t along = AlongRows(0x8000, 0x4000, 64 + 32);
  EXPECT_EQ(along & 0x3fff, (0x8000 + 0x4000 + 32 * 2) >> 4);
  EXPECT_EQ(along >> 32 & 0x3fff, 1024 >> 4);
  EXPECT_EQ(along >> 62, 1u);
  const uint64_t across = AcrossRows(0x8000, 0x4000, 48);
  EXPECT_EQ(across & 0x3fff, (0x8000 + 48 * 128) >> 4);
  EXPECT_EQ(across >> 16 & 0x3fff, 0x4000u >> 4);
  EXPECT_EQ(across >> 32 & 0x3fff, 1024 >> 4);
  EXPECT_EQ(across >> 62, 1u);
}

// A block's limit on an H100, including the system's part.
TEST(HopperLayoutTest, BlocksFitAGpu) {
  for (const int dim : {64, 128, 256}) EXPECT_LE(HopperSharedBytes(dim), (227 << 10)) << dim;
  constexpr int kRegisters = 64 << 10;
  EXPECT_LE(kGroupThreads * (kProducerRegisters + 2 * kConsumerRegisters), kRegisters);
}

}  // namespace
}  // namespace annulus::cuda
