#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_RULES_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_RULES_H_

#include <cstddef>
#include <cstdint>

#include "attention/spec/dtype.h"

namespace annulus {

// Keys [begin, end) of a block.
struct KeySpan {
  int16_t begin = 0, end = 0;
};

// The bias and the bit mask of a tile, for one block of keys. Columns are keys of a row's sequence.
struct PairRule {
  struct Row {
    const std::byte* bias = nullptr;  // Column 0; nullptr: none.
    const std::byte* bits = nullptr;  // Column 0 is the lowest bit; nullptr: none.
    int64_t first_key = 0;            // The packed key row of column 0.
    int16_t begin = 0, end = 0;       // Keys of the block that belong to the row's sequence.
  };
  // Keys [begin, end) of the block are the packed rows from `key` on.
  struct Run {
    int16_t begin = 0, end = 0;
    int64_t key = 0;
  };
  DataType dtype = DataType::kUnspecified;  // The bias's type.
  const Row* row = nullptr;
  const Run* runs = nullptr;
  int run_count = 0;
};

// The changes of a job to the scores of a tile, mask intervals aside, for one block of keys. Arrays
// of rows are indexed by the tile's rows, arrays of keys by the block's keys. The members are in
// the order in which they apply.
struct ScoreRule {
  // Offset: s += offset, before all else. nullptr: none.
  const float* offset = nullptr;  // One per row.
  // Soft cap: s = cap · tanh(s / cap). 0: none. 1 / cap is the sum of two parts, both above 0;
  // otherwise an infinite score would become NaN.
  float cap = 0;
  float per_cap_high = 0, per_cap_low = 0;
  // ALiBi: s −= slope · |position − key|. nullptr: none.
  const float* slope = nullptr;       // One per row.
  const int32_t* position = nullptr;  // The packed key row at the position of each row.
  const int32_t* key = nullptr;       // The packed row of each key.
  // Bias and bit mask: s += bias; −inf if the bias is −inf or the bit is 0, whatever s is. nullptr:
  // neither.
  const PairRule* pairs = nullptr;
};

// Dropout of the weights of a tile (attention/numerics/dropout.h), for one block of keys.
struct DropRule {
  uint32_t seed[2] = {0, 0};               // The generator's key.
  uint32_t threshold = 0;                  // A word below it drops its weight.
  const uint32_t (*counter)[3] = nullptr;  // Words 1 to 3 of each row's counters.
  const int32_t* first_key = nullptr;  // The packed row of the first key of each row's sequence.
  const int32_t* key = nullptr;        // The packed row of each key.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_SCORE_RULES_H_
