#ifndef ANNULUS_WORKER_KERNEL_SCORE_RULES_H_
#define ANNULUS_WORKER_KERNEL_SCORE_RULES_H_

#include <cstdint>

namespace annulus {

// What a job does to the scores of a tile beside the mask, for one block of keys. Arrays of rows
// are indexed as the tile's rows, arrays of keys as the block's.
struct ScoreRule {
  // Soft cap: s = cap · tanh(s / cap). 0: none. 1 / cap comes in two parts, both above 0 (or an
  // infinite score would become NaN).
  float cap = 0;
  float per_cap_high = 0, per_cap_low = 0;
  // ALiBi: s −= slope · |position − key|. nullptr: none.
  const float* slope = nullptr;       // Of each row.
  const int32_t* position = nullptr;  // The packed key row at which each row stands.
  const int32_t* key = nullptr;       // The packed row of each key.
};

// What dropout does to the weights of a tile (attention/dropout.h), for one block of keys.
struct DropRule {
  uint32_t seed[2] = {0, 0};               // The generator's key.
  uint32_t threshold = 0;                  // Words below drop their weight.
  const uint32_t (*counter)[3] = nullptr;  // Words 1 to 3 of each row's counters.
  const int32_t* first_key = nullptr;      // Packed row of the first key of each row's sequence.
  const int32_t* key = nullptr;            // The packed row of each key.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_SCORE_RULES_H_
