#ifndef ANNULUS_ATTENTION_NUMERICS_PHILOX_H_
#define ANNULUS_ATTENTION_NUMERICS_PHILOX_H_

#include <array>
#include <cstdint>

namespace annulus {

// Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// A pure function of a counter and a key. It generates synthetic inputs and dropout, whose counters
// never coincide.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The key of a seed: (seed mod 2^32, ⌊seed / 2^32⌋).
inline std::array<uint32_t, 2> PhiloxKey(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_PHILOX_H_
