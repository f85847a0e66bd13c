#include "attention/schedule.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "attention/schedule/builders.h"
#include "attention/schedule/needs.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

struct BuilderRow {
  Strategy strategy;
  ScheduleBuilder build;
};

constexpr BuilderRow kBuilders[] = {
    {Strategy::kRingPassKv, BuildRingPassKv},
    {Strategy::kAllGatherKv, BuildAllGatherKv},
    {Strategy::kRotateKv, BuildRotateKv},
    {Strategy::kHalo, BuildAllGatherKv},
};

absl::StatusOr<ScheduleBuilder> BuilderOf(const ScheduleRequest& request) {
  for (const BuilderRow& row : kBuilders) {
    if (row.strategy == request.execution.strategy) return row.build;
  }
  const std::string name(StrategyName(request.execution.strategy));
  ErrorDetail detail;
  detail.reason = "NOT_SERVED";
  detail.metadata["strategy"] = name;
  detail.fields.push_back({"execution.strategy", "has no schedule builder"});
  return MakeError(absl::StatusCode::kUnimplemented,
                   absl::StrCat("strategy ", name, " has no schedule builder"), detail);
}

RankSchedule Build(const ScheduleRequest& request, const Needs& needs, ScheduleBuilder build,
                   int32_t rank) {
  if (request.plan->world_size == 1 || !needs.any()) return BuildOneRank(request, needs, rank);
  return build(request, needs, rank);
}

}  // namespace

absl::StatusOr<RankSchedule> MakeSchedule(const ScheduleRequest& request, int32_t rank) {
  ASSIGN_OR_RETURN(const ScheduleBuilder build, BuilderOf(request));
  if (rank < 0 || rank >= request.plan->world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not one of the ",
                                                   request.plan->world_size, " ranks of the plan"));
  }
  return Build(request, Needs(request), build, rank);
}

absl::StatusOr<std::vector<RankSchedule>> MakeGroupSchedules(const ScheduleRequest& request) {
  ASSIGN_OR_RETURN(const ScheduleBuilder build, BuilderOf(request));
  const Needs needs(request);
  std::vector<RankSchedule> ranks;
  for (int32_t rank = 0; rank < request.plan->world_size; ++rank) {
    ranks.push_back(Build(request, needs, build, rank));
  }
  return ranks;
}

}  // namespace annulus
