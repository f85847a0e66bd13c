#include "proto/wire/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

namespace annulus {
namespace {

// The definition, bit by bit.
uint32_t Reference(uint32_t crc, const char* data, size_t size) {
  crc = ~crc;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<uint8_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

std::string RandomBytes(size_t size) {
  std::mt19937 random(1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(Crc32cTest, IsTheStandards) { EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u); }

TEST(Crc32cTest, OfAnyLengthAndPlace) {
  const std::string bytes = RandomBytes((1 << 20) + 5000);
  for (size_t size :
       {0, 1, 63, 4096, 65535, 65536, 65537, 69632, 100001, 262144, 1 << 20, (1 << 20) + 4095}) {
    for (size_t begin : {0, 3}) {
      EXPECT_EQ(Crc32c(bytes.data() + begin, size), Reference(0, bytes.data() + begin, size))
          << size << " bytes from " << begin;
    }
  }
}

TEST(Crc32cTest, GoesOnFromWhatCameBefore) {
  const std::string bytes = RandomBytes(300000);
  const uint32_t whole = Reference(0, bytes.data(), bytes.size());
  for (size_t cut : {1, 1000, 150000, 299999}) {
    const uint32_t first = Crc32c(bytes.data(), cut);
    EXPECT_EQ(ExtendCrc32c(first, bytes.data() + cut, bytes.size() - cut), whole) << cut;
  }
}

TEST(Crc32cTest, SeesEveryChangedBit) {
  std::string bytes = RandomBytes(1 << 17);
  const uint32_t before = Crc32c(bytes.data(), bytes.size());
  for (size_t place = 0; place < bytes.size(); place += 509) {
    bytes[place] = static_cast<char>(bytes[place] ^ 16);
    EXPECT_NE(Crc32c(bytes.data(), bytes.size()), before) << place;
    bytes[place] = static_cast<char>(bytes[place] ^ 16);
  }
}

}  // namespace
}  // namespace annulus
