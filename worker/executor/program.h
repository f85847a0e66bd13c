#ifndef ANNULUS_WORKER_EXECUTOR_PROGRAM_H_
#define ANNULUS_WORKER_EXECUTOR_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/mask/mask.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/schedule.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/spec.h"

namespace annulus {

// Everything that one rank derives from a job before it runs: a pure function of spec, execution
// and rank. Immutable; may be shared between threads.
struct RankProgram {
  AttentionSpec spec;
  ShardPlan plan;
  MaskMap mask;
  BlockLayout layout;
  RankSchedule schedule;
  ArenaPlan placement;
  int32_t rank = 0;
  // By buffer: it stays in staging. Empty: none does.
  std::vector<bool> in_staging;
  bool stays(int32_t buffer) const { return !in_staging.empty() && in_staging[buffer]; }
  // Ranks tell one another at the end whether they have a result (Executor::Run), a byte each.
  int64_t verdict_bytes = 0;
  // Device memory of a run: the arena, and behind it the verdicts.
  int64_t memory_bytes() const { return placement.arena_bytes + verdict_bytes; }
};

// What a program needs, as the coordinator ships it.
struct ProgramRequest {
  AttentionSpec spec;
  PlanOptions plan_options;
  Execution execution;                 // Resolved.
  std::vector<int32_t> parts_of_step;  // Empty: no step is split.
  int32_t rank = 0;
  bool reads_staging = false;  // As the device says (worker/device/device.h).
  bool ends_rows = false;      // As the kernel says (worker/kernel/attention_kernel.h).
  // The bytes that `spec` and `execution` were read from; empty: not known, or very many.
  std::string source;
};

// INVALID_ARGUMENT for a rank, options or parts out of range, a granule that is no multiple of
// GranuleOf(spec) included, UNIMPLEMENTED for a layout or
// strategy that is not served. `spec` is valid.
absl::StatusOr<std::unique_ptr<const RankProgram>> MakeProgram(const ProgramRequest& request);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_PROGRAM_H_
