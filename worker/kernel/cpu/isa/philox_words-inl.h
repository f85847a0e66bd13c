#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_PHILOX_WORDS_INL_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_PHILOX_WORDS_INL_H_

#include <cstdint>

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) for dropout
// (attention/numerics/dropout.h). Computes which words of counters (counters[i], row[0], row[1],
// row[2]) lie below a threshold. Included only by files of a TileIsa (vector-inl.h).

namespace annulus {
namespace {

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxA = 0xD2511F53u, kPhiloxB = 0xCD9E8D57u;
// Counters whose words fill the bits of one number: four words each.
inline constexpr int kCountersAtOnce = 8;

// The two words of each round's key, each in eight bytes.
struct PhiloxKeys {
  explicit PhiloxKeys(const uint32_t* seed) {
    for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
      first[round] = seed[0] + round * 0x9E3779B9u;
      second[round] = seed[1] + round * 0xBB67AE85u;
    }
  }
  uint64_t first[kPhiloxRounds], second[kPhiloxRounds];
};

// Bit 4 · i + w: word w of counter i is below `threshold`.
inline uint32_t WordsBelowOneByOne(const uint32_t* counters, const uint32_t* row,
                                   const PhiloxKeys& keys, uint32_t threshold) {
  uint32_t c[4][kCountersAtOnce];
  for (int i = 0; i < kCountersAtOnce; ++i) {
    c[0][i] = counters[i];
    for (int w = 1; w < 4; ++w) c[w][i] = row[w - 1];
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto key0 = static_cast<uint32_t>(keys.first[round]);
    const auto key1 = static_cast<uint32_t>(keys.second[round]);
    for (int i = 0; i < kCountersAtOnce; ++i) {
      const uint64_t a = uint64_t{kPhiloxA} * c[0][i];
      const uint64_t b = uint64_t{kPhiloxB} * c[2][i];
      c[0][i] = static_cast<uint32_t>(b >> 32) ^ c[1][i] ^ key0;
      c[1][i] = static_cast<uint32_t>(b);
      c[2][i] = static_cast<uint32_t>(a >> 32) ^ c[3][i] ^ key1;
      c[3][i] = static_cast<uint32_t>(a);
    }
  }
  uint32_t below = 0;
  for (int i = 0; i < kCountersAtOnce; ++i) {
    for (int w = 0; w < 4; ++w) below |= uint32_t{c[w][i] < threshold} << (4 * i + w);
  }
  return below;
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_PHILOX_WORDS_INL_H_
