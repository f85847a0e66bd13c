#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_CASES_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/spec.h"

namespace annulus {

// An execution of `strategy` with nothing resolved.
Execution ExecutionOf(Strategy strategy);
// All executions that resolve it.
std::vector<Execution> TestExecutions(Strategy strategy, int32_t world_size, int32_t q_heads);

struct ScheduleCase {
  ScheduleCase(AttentionSpec spec, const PlanOptions& plan, const Execution& execution)
      : spec(std::move(spec)), plan(plan), execution(execution) {}
  // Uses the n-th resolved execution, modulo their number.
  ScheduleCase(AttentionSpec spec, const PlanOptions& plan, Strategy strategy, int64_t n = 0);

  AttentionSpec spec;
  PlanOptions plan;
  Execution execution;
};

// A case with everything derived from it. Not movable: `request` points into it.
struct BuiltCase {
  explicit BuiltCase(const ScheduleCase& from);
  BuiltCase(const BuiltCase&) = delete;
  BuiltCase& operator=(const BuiltCase&) = delete;

  AttentionSpec spec;
  MaskMap mask;
  ShardPlan plan;
  ScheduleRequest request;
  std::vector<RankSchedule> ranks;
  std::vector<ArenaPlan> placements;
};

// A schedule as numbers, equal only for equal schedules: buffers, inputs, outputs, and for each
// step transfers, tasks and ops.
std::vector<int64_t> NumbersOf(const RankSchedule& schedule);

// One line with all that is needed to rebuild the case, or the mask.
std::string Describe(const ScheduleCase& one);
std::string Describe(const Mask& mask);

// fp32 with head_dim 1, so that one number is one row of one head.
AttentionSpec SmallSpec(int32_t q_heads, int32_t kv_heads, std::vector<Sequence> sequences,
                        const Mask& mask);
Sequence Lengths(int64_t q_len, int64_t kv_len);

// Full, causal with both alignments, windows, chunks, prefixes, sinks, range lists.
std::vector<Mask> TestMasks();
// Changes the mask of some sequences or heads of a spec that has one mask. By `way`, modulo
// kMaskWays: no change; by sequence; by query head (every other one, or a few); both.
void VaryMasks(int64_t way, AttentionSpec* spec);
constexpr int64_t kMaskWays = 5;
// Makes the spec a gradients job, with sinks if `with_sinks`.
void AskForGradients(bool with_sinks, AttentionSpec* spec);
// Like AskForGradients, with a bias gradient.
void AskForBiasGradient(bool of_heads, AttentionSpec* spec);
std::vector<PlanOptions> TestPlans(int32_t world_size);
// All strategies that have a builder, for forward passes and gradients.
std::vector<Strategy> TestStrategies();

// The rule of docs/reference/numerics.md, "Masks", by its formula, without MaskMap. Rows of one
// sequence.
bool VisibleByFormula(const Mask& mask, const Sequence& sequence, int64_t q, int64_t k);
// Uses the mask of the head in the sequence.
bool VisibleByFormula(const AttentionSpec& spec, int64_t sequence, int32_t q_head, int64_t q,
                      int64_t k);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_CASES_H_
