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

// Everything that one rank derives from a job before it runs. A pure function of spec, execution
// and rank. Immutable; may be shared between threads.
struct RankProgram {
  AttentionSpec spec;
  ShardPlan plan;
  MaskMap mask;
  BlockLayout layout;
  RankSchedule schedule;
  ArenaPlan placement;
  int32_t rank = 0;
  // Indexed by buffer. True if the buffer stays in staging. Empty if none does.
  std::vector<bool> in_staging;
  bool stays(int32_t buffer) const { return !in_staging.empty() && in_staging[buffer]; }
  // Size of the ranks' verdicts in bytes: one byte for each rank, or 0 if ranks exchange none
  // (Executor).
  int64_t verdict_bytes = 0;
  // Device memory of a run: the arena, followed by the verdicts.
  int64_t memory_bytes() const { return placement.arena_bytes + verdict_bytes; }
};

// Inputs of a program, as the coordinator sends them.
struct ProgramRequest {
  AttentionSpec spec;
  PlanOptions plan_options;
  Execution execution;                 // Resolved: strategy and degrees are set.
  std::vector<int32_t> parts_of_step;  // Empty: no step is split.
  int32_t rank = 0;
  bool reads_staging = false;  // From Device::reads_staging.
  bool ends_rows = false;      // From AttentionKernel::ends_rows.
  // The bytes from which `spec` and `execution` were parsed. Empty if unknown or too many.
  std::string source;
};

// Requires: `spec` is valid. INVALID_ARGUMENT: rank, options or parts are out of range, or the
// granule is not a multiple of GranuleOf(spec). UNIMPLEMENTED: the layout or strategy is not
// supported.
absl::StatusOr<std::unique_ptr<const RankProgram>> MakeProgram(const ProgramRequest& request);

}  // namespace annulus

#endif  // ANNULUS_WORKER_EXECUTOR_PROGRAM_H_
