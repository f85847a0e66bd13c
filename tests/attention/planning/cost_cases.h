#ifndef ANNULUS_TESTS_ATTENTION_PLANNING_COST_CASES_H_
#define ANNULUS_TESTS_ATTENTION_PLANNING_COST_CASES_H_

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/planning/choose_execution.h"
#include "attention/spec/parallel_degrees.h"

namespace annulus {

inline AttentionSpec CostSpec(int64_t q_len, int64_t kv_len, bool causal) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences = {{q_len, kv_len, "", 0, 0}};
  if (causal) spec.masks.emplace_back().causal = true;
  return spec;
}

inline Choice Offer(std::vector<int32_t> sizes) {
  Choice choice;
  choice.sizes = std::move(sizes);
  choice.max_peak_bytes = int64_t{1} << 40;
  return choice;
}

// The cost of the first execution that resolves `open`.
inline Cost CostOf(const AttentionSpec& spec, const Execution& open, Layout layout, int32_t size,
                   const Rates& rates = {}) {
  PlanOptions options;
  options.world_size = size;
  options.layout = layout;
  const auto plan = MakeShardPlan(spec, options);
  const MaskMap mask(spec);
  const Execution execution = ResolveDegrees(open, size, spec.q_heads).front();
  return *PredictCost({&spec, &mask, &*plan, execution}, rates);
}

inline Cost CostOf(const AttentionSpec& spec, Strategy strategy, Layout layout, int32_t size,
                   bool bf16_partials = false, const Rates& rates = {}) {
  Execution open;
  open.strategy = strategy;
  open.bf16_partials = bf16_partials;
  return CostOf(spec, open, layout, size, rates);
}

inline int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_PLANNING_COST_CASES_H_
