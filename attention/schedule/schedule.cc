#include "attention/schedule/schedule.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/passes/attach_score_inputs.h"
#include "attention/schedule/passes/fix_order.h"
#include "attention/schedule/passes/key_pass.h"
#include "attention/schedule/strategies/builders.h"
#include "attention/spec/limits.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

struct BuilderRow {
  Strategy strategy;
  ScheduleBuilder build;
  RowSpace travels;
  // True if ranks send what they have computed, also in a forward pass: then a rank that fails
  // makes all ranks fail (ResultsTravel). A wrong `false` lets peers publish outputs that a failed
  // rank's numbers went into.
  bool sends_home;
};

// For forward passes and gradients.
constexpr BuilderRow kBuilders[] = {
    {Strategy::kRingPassKv, BuildUlyssesRing, RowSpace::kKey, false},
    {Strategy::kAllGatherKv, BuildAllGatherKv, RowSpace::kKey, false},
    {Strategy::kRotateKv, BuildRotateKv, RowSpace::kKey, false},
    {Strategy::kHalo, BuildAllGatherKv, RowSpace::kKey, false},
    {Strategy::kUlysses, BuildUlyssesRing, RowSpace::kKey, true},
    {Strategy::kUlyssesRing, BuildUlyssesRing, RowSpace::kKey, true},
    {Strategy::kRingPassQ, BuildRingPassQ, RowSpace::kQuery, true},
    {Strategy::kDoubleRing, BuildDoubleRing, RowSpace::kKey, false},
    {Strategy::kTree, BuildTree, RowSpace::kQuery, true},
};
static_assert(std::size(kBuilders) == static_cast<size_t>(kLastStrategy), "all but kAuto");

absl::StatusOr<BuilderRow> BuilderOf(const ScheduleRequest& request) {
  for (const BuilderRow& row : kBuilders) {
    if (row.strategy == request.execution.strategy) return row;
  }
  const std::string name(StrategyName(request.execution.strategy));
  ErrorDetail detail;
  detail.reason = "NOT_SERVED";
  detail.metadata["strategy"] = name;
  detail.fields.push_back({"execution.strategy", "has no schedule builder"});
  return MakeError(absl::StatusCode::kUnimplemented,
                   absl::StrCat("strategy ", name, " has no schedule builder"), detail);
}

absl::Status PutInOrder(const ScheduleRequest& request, std::vector<RankSchedule>* ranks) {
  int64_t tasks = 0;
  for (const RankSchedule& rank : *ranks) tasks += CountInOrder(request, rank);
  RETURN_IF_ERROR(CheckLimit("spec.sequences", tasks, kMaxFoldTasks));
  for (RankSchedule& rank : *ranks) FixOrder(request, &rank);
  return absl::OkStatus();
}

// The schedules of ranks [begin, end).
absl::StatusOr<std::vector<RankSchedule>> BuildRanks(const ScheduleRequest& request, int32_t begin,
                                                     int32_t end) {
  ASSIGN_OR_RETURN(const BuilderRow row, BuilderOf(request));
  const bool in_order = request.spec->deterministic;
  const int32_t world = request.plan->world_size;
  if (begin < 0 || end > world) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", begin, " is not one of the ", world, " ranks of the plan"));
  }
  ASSIGN_OR_RETURN(const ParallelDegrees degrees, ParallelDegreesOf(request.execution, world));
  if (!FoldsInOrder(*request.spec, row.strategy, degrees.ulysses)) {
    return absl::InvalidArgumentError("a deterministic job's sums may not be added up by rank");
  }
  PlanMemo own(request);
  PlanMemo& memo = request.memo != nullptr ? *request.memo : own;
  const Needs& needs = memo.NeedsOf(row.travels);
  const bool alone = world == 1 || !needs.any();
  // If all ranks exchange whole key/value heads, each makes the gradients of its own heads in one
  // pass, as one rank would.
  const bool two_passes =
      in_order && request.spec->operation == Operation::kGradients && !alone && degrees.ring > 1;
  const GroupView group{request, degrees, needs, memo.rectangles(), two_passes};
  const Needs* const queries = two_passes ? &memo.NeedsOf(RowSpace::kQuery) : nullptr;
  std::vector<RankSchedule> ranks;
  for (int32_t rank = begin; rank < end; ++rank) {
    ranks.push_back(alone ? BuildOneRank(group, rank) : row.build(group, rank));
    if (two_passes) ranks.back() = AddKeyPass(group, rank, *queries, std::move(ranks.back()));
    AttachScoreInputs(*request.spec, &ranks.back());
    AttachBiasGradient(*request.spec, &ranks.back());
  }
  if (in_order) RETURN_IF_ERROR(PutInOrder(request, &ranks));
  return ranks;
}

}  // namespace

absl::StatusOr<RankSchedule> MakeSchedule(const ScheduleRequest& request, int32_t rank) {
  ASSIGN_OR_RETURN(std::vector<RankSchedule> ranks, BuildRanks(request, rank, rank + 1));
  return std::move(ranks[0]);
}

bool ResultsTravel(const AttentionSpec& spec, const Execution& execution) {
  if (spec.operation == Operation::kGradients) return true;
  return !std::any_of(std::begin(kBuilders), std::end(kBuilders), [&](const BuilderRow& row) {
    return row.strategy == execution.strategy && !row.sends_home;
  });
}

int64_t VerdictBytes(const AttentionSpec& spec, const Execution& execution, int32_t world_size) {
  return world_size > 1 && ResultsTravel(spec, execution) ? world_size : 0;
}

absl::StatusOr<std::vector<RankSchedule>> MakeGroupSchedules(const ScheduleRequest& request) {
  return BuildRanks(request, 0, request.plan->world_size);
}

}  // namespace annulus
