#ifndef ANNULUS_TESTS_WORKER_KERNEL_PAIR_CASES_H_
#define ANNULUS_TESTS_WORKER_KERNEL_PAIR_CASES_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {

// Jobs with a bias, a bit mask or both, for forward and backward. `n` iterates over types, heads
// and other options.

inline reference::Input WithPairs(const AttentionSpec& spec, uint64_t seed) {
  reference::Input input = Normal(spec, seed);
  FillPairs(seed + 1, spec, &input);
  return input;
}

inline AttentionSpec PairsSpec(int n, std::vector<Sequence> sequences) {
  constexpr DataType kTypes[] = {DataType::kFp32, DataType::kBf16, DataType::kFp16};
  AttentionSpec spec = Spec(kTypes[n % 3], 6, 3, 40);
  spec.head_dim_v = 33;
  spec.sequences = std::move(sequences);
  if (n % 4 != 0) spec.modifiers.bias = Bias{kTypes[n / 3 % 3], n % 8 < 4 ? 1 : 6};
  if (n % 4 != 1) {
    spec.masks = {n % 5 == 0 ? Causal() : Mask()};
    spec.masks[0].bit_mask = true;
    spec.bit_mask_heads = n % 8 < 6 ? 1 : 6;
  }
  if (n % 7 == 0) spec.modifiers.soft_cap = 1.5;
  if (n % 7 < 2) spec.modifiers.alibi_slopes = {0.5f, 0.25f, 0.1f, 0.01f, -0.1f, 1.0f};
  if (n % 7 == 2) spec.modifiers.sinks = {0.5f, -1, 2, 0, 3, 1};
  if (n % 7 == 3) spec.dropout = Dropout{0.2, 7};
  spec.modifiers.lse_offset = n % 5 < 2;
  return spec;
}

inline Cuts PairsCuts(int n, std::vector<int64_t> q_rows) {
  Cuts cuts;
  cuts.q_rows = std::move(q_rows);
  cuts.q_heads = {1 + n % 5};
  cuts.keys = {37, 100};
  cuts.key_shards = 1 + n % 3;
  cuts.striped = n % 2 == 0;
  cuts.call_per_task = n % 5 == 1;
  return cuts;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_PAIR_CASES_H_
