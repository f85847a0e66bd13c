#ifndef ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_
#define ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_

#include <cstdint>

#include "worker/kernel/philox_words.h"
#include "worker/kernel/tile_vector.h"

// Dropout of a TileIsa (tile_vector.h): weights that are dropped become 0.

namespace annulus {
namespace {

// The counters that keys [begin, end) of a block need for rows of one sequence: key k has word
// word[k] of what they give. Words follow one another where keys do.
struct KeyCounters {
  int begin = 0, end = 0;
  int32_t first_key = 0;
  int count = 0;
  bool in_a_row = true;
  uint32_t first[kKeyBlock + kCountersAtOnce];
  int16_t word[kKeyBlock];

  void Find(const DropRule& rule, int row, KeySpan part) {
    if (count > 0 && begin == part.begin && end == part.end && first_key == rule.first_key[row])
      return;
    begin = part.begin;
    end = part.end;
    first_key = rule.first_key[row];
    count = 0;
    in_a_row = true;
    for (int k = begin; k < end; ++k) {
      const auto key = static_cast<uint32_t>(rule.key[k] - first_key);
      if (count == 0 || first[count - 1] != key >> 2) first[count++] = key >> 2;
      word[k] = static_cast<int16_t>(4 * (count - 1) + static_cast<int>(key & 3));
      in_a_row = in_a_row && word[k] - word[begin] == k - begin;
    }
    for (int i = 0; i < kCountersAtOnce; ++i) first[count + i] = 0;
  }
};

// Bits of words that are dropped, of a row's counters.
using DroppedWords = uint32_t[kKeyBlock / kCountersAtOnce + 2];

// Bit i: key k + i is dropped.
template <class V>
inline uint32_t DroppedFrom(const DroppedWords& dropped, const KeyCounters& counters, int k) {
  if (counters.in_a_row) {
    const int at = counters.word[k];
    const uint64_t both = dropped[at / 32] | uint64_t{dropped[at / 32 + 1]} << 32;
    return static_cast<uint32_t>(both >> (at % 32));
  }
  uint32_t bits = 0;
  for (int i = 0; i < V::kLanes; ++i) {
    const int at = counters.word[k + i];
    bits |= (dropped[at / 32] >> (at % 32) & 1) << i;
  }
  return bits;
}

template <class V>
void DropWeights(const TileBlock& tile, const DropRule& rule) {
  const PhiloxKeys keys(rule.seed);
  KeyCounters counters;
  DroppedWords dropped = {};
  for (int row = 0; row < tile.rows; ++row) {
    const KeySpan part = WrittenPart<V>(tile, row);
    if (part.begin >= part.end) continue;
    counters.Find(rule, row, part);
    for (int i = 0; i < counters.count; i += kCountersAtOnce) {
      dropped[i / kCountersAtOnce] =
          V::WordsBelow(counters.first + i, rule.counter[row], keys, rule.threshold);
    }
    float* const weights = tile.scores + row * kKeyBlock;
    for (int k = part.begin; k < part.end; k += V::kLanes) {
      V::Store(weights + k,
               V::Choose(DroppedFrom<V>(dropped, counters, k), V::Zero(), V::Load(weights + k)));
    }
  }
}

}  // namespace
}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_TILE_DROPOUT_H_
