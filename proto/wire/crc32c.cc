#include "proto/wire/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace annulus {
namespace {

// Polynomials modulo that of CRC-32C. The highest bit is the coefficient of x^0.
using Poly = uint32_t;
constexpr Poly kOne = 0x80000000, kModulus = 0x82F63B78;

constexpr Poly Times(Poly a, Poly b) {
  Poly product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & kOne) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? kModulus : 0);
  }
  return product;
}

// x to the power of 8, 16, 32, …
constexpr std::array<Poly, 64> PowersOfBytes() {
  std::array<Poly, 64> powers = {kOne >> 8};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = Times(powers[i - 1], powers[i - 1]);
  return powers;
}

// The CRC of two consecutive pieces from their CRCs; the second piece has `size` bytes.
uint32_t Join(uint32_t first, uint32_t second, size_t size) {
  static constexpr std::array<Poly, 64> kPowers = PowersOfBytes();
  for (size_t i = 0; size != 0; size >>= 1, ++i) {
    if ((size & 1) != 0) first = Times(kPowers[i], first);
  }
  return first ^ second;
}

uint32_t ExtendInOrder(uint32_t crc, const void* data, size_t size) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // ISA-L counts bytes in an int.
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;  // ISA-L leaves the standard's first and last inversion to its caller.
  while (size > 0) {
    const size_t part = std::min(size, kMostAtOnce);
    state = crc32_iscsi(bytes, static_cast<int>(part), state);
    bytes += part;
    size -= part;
  }
  return ~state;
}

void Prefetch(const unsigned char* data, size_t size) {
  for (size_t i = 0; i < size; i += 64) __builtin_prefetch(data + i);
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  // Bytes that are in no cache arrive faster if they are read at several places at once and
  // prefetched: a CPU's own prefetcher stops at the end of a page.
  constexpr size_t kLanes = 4, kStep = 1024, kLong = 64 << 10;
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (size < kLong) return ExtendInOrder(crc, bytes, size);
  const size_t lane = size / kLanes / kStep * kStep;
  std::array<uint32_t, kLanes> crcs = {crc};
  for (size_t offset = 0; offset < lane; offset += kStep) {
    for (size_t i = 0; i < kLanes; ++i) {
      const unsigned char* step = bytes + i * lane + offset;
      if (offset + kStep < lane) Prefetch(step + kStep, kStep);
      crcs[i] = ExtendInOrder(crcs[i], step, kStep);
    }
  }
  for (size_t i = 1; i < kLanes; ++i) crcs[0] = Join(crcs[0], crcs[i], lane);
  return ExtendInOrder(crcs[0], bytes + kLanes * lane, size - kLanes * lane);
}

}  // namespace annulus
