#include "worker/executor/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/schedule/passes/row_ends.h"
#include "attention/schedule/passes/segment_steps.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

absl::Status CheckParts(const std::vector<int32_t>& parts, size_t steps) {
  const bool positive = std::all_of(parts.begin(), parts.end(), [](int32_t n) { return n >= 1; });
  if (parts.empty() || (parts.size() == steps && positive)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a schedule of ", steps, " steps needs 1 or more parts for each step, not parts of ",
      parts.size(), " steps"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const RankProgram>> MakeProgram(const ProgramRequest& request) {
  if (request.plan_options.granule % GranuleOf(request.spec) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a granule of ", request.plan_options.granule,
                                                   " rows cuts tiles of a deterministic job"));
  }
  ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(request.spec, request.plan_options));
  MaskMap mask(request.spec);
  ScheduleRequest ask;
  ask.spec = &request.spec;
  ask.mask = &mask;
  ask.plan = &plan;
  ask.execution = request.execution;
  ASSIGN_OR_RETURN(RankSchedule schedule, MakeSchedule(ask, request.rank));
  RETURN_IF_ERROR(CheckParts(request.parts_of_step, schedule.steps.size()));
  if (!request.parts_of_step.empty()) {
    schedule = SplitSteps(schedule, ask, request.parts_of_step);
  }
  const BlockLayout layout(request.spec);
  std::vector<bool> in_staging;
  if (request.reads_staging) in_staging = BuffersInStaging(schedule);
  constexpr int64_t kAlignment = 128;
  ArenaPlan placement = PlanArena(schedule, layout, kAlignment, in_staging);
  if (request.ends_rows && request.reads_staging) {
    RankSchedule ended = WithRowEnds(schedule, in_staging);
    ArenaPlan fewer = PlanArena(ended, layout, kAlignment, in_staging);
    // With shorter buffer lifetimes first fit may need more memory, and the coordinator's plan
    // counts only the memory without row ends.
    if (fewer.arena_bytes <= placement.arena_bytes) {
      schedule = std::move(ended);
      placement = std::move(fewer);
    }
  }
  const int64_t verdict_bytes = VerdictBytes(request.spec, ask.execution, plan.world_size);
  return std::unique_ptr<const RankProgram>(
      new RankProgram{request.spec, std::move(plan), std::move(mask), layout, std::move(schedule),
                      std::move(placement), request.rank, std::move(in_staging), verdict_bytes});
}

}  // namespace annulus
