#ifndef ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_
#define ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_

#include <cstdint>

#include "worker/kernel/tile_vector.h"

// Dropout of a TileIsa (tile_vector.h): weights that are dropped become 0. Plain loops over arrays,
// which the compiler makes vectors of.

namespace annulus {
namespace {

// Counters that go through the generator side by side.
inline constexpr int kCountersAtOnce = 16;

// Philox4x32-10 of counters (first[i], row[0], row[1], row[2]), four words for each.
inline void PhiloxWords(const uint32_t* first, const uint32_t* row, const uint32_t* seed,
                        uint32_t* words) {
  uint32_t c[4][kCountersAtOnce];
  for (int i = 0; i < kCountersAtOnce; ++i) {
    c[0][i] = first[i];
    for (int w = 1; w < 4; ++w) c[w][i] = row[w - 1];
  }
  uint32_t key0 = seed[0], key1 = seed[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCountersAtOnce; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * c[0][i];
      const uint64_t b = uint64_t{0xCD9E8D57u} * c[2][i];
      c[0][i] = static_cast<uint32_t>(b >> 32) ^ c[1][i] ^ key0;
      c[1][i] = static_cast<uint32_t>(b);
      c[2][i] = static_cast<uint32_t>(a >> 32) ^ c[3][i] ^ key1;
      c[3][i] = static_cast<uint32_t>(a);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int i = 0; i < kCountersAtOnce; ++i)
    for (int w = 0; w < 4; ++w) words[4 * i + w] = c[w][i];
}

// The counters that keys [begin, end) of a block need for rows of one sequence: key k has word
// word[k] of what they give.
struct KeyCounters {
  int begin = 0, end = 0;
  int32_t first_key = 0;
  int count = 0;
  uint32_t first[kKeyBlock + kCountersAtOnce];
  int16_t word[kKeyBlock];

  void Find(const DropRule& rule, int row, KeySpan part) {
    if (count > 0 && begin == part.begin && end == part.end && first_key == rule.first_key[row])
      return;
    begin = part.begin;
    end = part.end;
    first_key = rule.first_key[row];
    count = 0;
    for (int k = begin; k < end; ++k) {
      const auto key = static_cast<uint32_t>(rule.key[k] - first_key);
      if (count == 0 || first[count - 1] != key >> 2) first[count++] = key >> 2;
      word[k] = static_cast<int16_t>(4 * (count - 1) + static_cast<int>(key & 3));
    }
    for (int i = 0; i < kCountersAtOnce; ++i) first[count + i] = 0;
  }
};

template <class V>
void DropWeights(const TileBlock& tile, const DropRule& rule) {
  KeyCounters counters;
  uint32_t words[4 * (kKeyBlock + kCountersAtOnce)];
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    if (part.begin >= part.end) continue;
    counters.Find(rule, row, part);
    for (int i = 0; i < counters.count; i += kCountersAtOnce)
      PhiloxWords(counters.first + i, rule.counter[row], rule.seed, words + 4 * i);
    float* weights = tile.scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; ++k)
      weights[k] = words[counters.word[k]] < rule.threshold ? 0.0f : weights[k];
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_
