#include "server/coordinator/planning/planner.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask.h"
#include "attention/planning/choose_execution.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/passes/segment_steps.h"
#include "attention/schedule/schedule.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

constexpr int32_t kMaxSegments = 10000;

struct StagingLimit {
  int64_t bytes = 0;
  bool kept = false;  // The limit of the part for kept states.
};

StagingLimit LimitOf(const PlanRequest& request) {
  const bool kept = request.submission->spec.keeps_state();
  return {kept ? std::min(request.max_staging_bytes, request.max_kept_bytes)
               : request.max_staging_bytes,
          kept};
}

absl::Status TooLarge(int64_t needed, const StagingLimit& limit) {
  const FieldViolation field =
      limit.kept ? FieldViolation{"spec.forward.keep_state",
                                  "needs more memory than the workers have for kept states"}
                 : FieldViolation{"spec.sequences", "has more rows than the workers can stage"};
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("a shard of the job needs ", needed,
                                " bytes of staging memory, but a worker has ", limit.bytes,
                                limit.kept ? " for kept states" : ""),
                   ErrorDetail{"INSUFFICIENT_CAPACITY",
                               {{"budget", limit.kept ? "kept" : "staging"},
                                {"needed_bytes", absl::StrCat(needed)},
                                {"limit_bytes", absl::StrCat(limit.bytes)}},
                               {field},
                               {}});
}

absl::StatusOr<std::shared_ptr<JobPlan>> PlanForSizes(const PlanRequest& request,
                                                      const std::vector<int32_t>& sizes) {
  const Submission& job = *request.submission;
  ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                   ChooseExecution(job.spec, request.execution,
                                   {sizes, request.rates, request.max_device_bytes, &request.ways,
                                    request.factor, request.count_all}));
  auto plan = std::make_shared<JobPlan>();
  plan->granule = GranuleOf(job.spec);
  plan->pair_seconds = request.rates.pair_seconds;
  plan->factor = request.factor;
  plan->execution = candidates.front().execution;
  plan->cost = std::move(candidates.front().cost);
  plan->rejected.assign(std::make_move_iterator(candidates.begin() + 1),
                        std::make_move_iterator(candidates.end()));
  ASSIGN_OR_RETURN(plan->shards,
                   MakeShardPlan(job.spec, PlanOptionsOf(plan->execution, plan->granule)));
  plan->bytes = BytesOfShards(job.spec, plan->shards);
  return plan;
}

bool NoWay(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnimplemented ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

// Bounded, so that the sum of absurdly long steps does not overflow.
int64_t WholeNanoseconds(double seconds) {
  return static_cast<int64_t>(std::min(seconds * 1e9, 1e15));
}

std::vector<int64_t> Nanoseconds(const std::vector<double>& seconds) {
  std::vector<int64_t> result;
  for (double s : seconds) result.push_back(WholeNanoseconds(s));
  return result;
}

// The device memory that workers will need: they place the schedule after splitting.
int64_t PeakOfParts(const ScheduleRequest& request, const std::vector<RankSchedule>& ranks,
                    const std::vector<int32_t>& parts) {
  const BlockLayout layout(*request.spec);
  int64_t peak = 0;
  for (const RankSchedule& rank : ranks) {
    peak = std::max(peak, PlanArena(SplitSteps(rank, request, parts), layout).arena_bytes);
  }
  return peak + VerdictBytes(*request.spec, request.execution, static_cast<int32_t>(ranks.size()));
}

// Rates of a worker that is slowed down again as much as during its own measurement.
Rates UnhurriedRates(const PlanRequest& request) {
  Rates rates = request.rates;
  const double factor = std::max(1.0, 1 / request.factor);
  rates.SetKernel(Scaled(rates.kernel(), factor));
  return rates;
}

std::vector<std::vector<int64_t>> StepCosts(const std::vector<RankSchedule>& ranks,
                                            const ScheduleRequest& schedule, const Rates& rates) {
  std::vector<std::vector<int64_t>> costs;
  for (const RankSchedule& rank : ranks) {
    costs.push_back(Nanoseconds(StepSeconds(rank, schedule, rates)));
  }
  return costs;
}

// Cuts long jobs, so that cancellation, deadlines and other jobs wait for one segment only.
absl::Status CutLongJob(const PlanRequest& request, JobPlan* plan) {
  const double segments = plan->cost.seconds / absl::ToDoubleSeconds(request.segment_target);
  if (plan->world_size() == 1 || !(segments > 1)) return absl::OkStatus();
  plan->segments = static_cast<int32_t>(std::min<double>(std::ceil(segments), kMaxSegments));
  const AttentionSpec& spec = request.submission->spec;
  const MaskMap mask(spec);
  const ScheduleRequest schedule{&spec, &mask, &plan->shards, plan->execution};
  ASSIGN_OR_RETURN(std::vector<RankSchedule> ranks, MakeGroupSchedules(schedule));
  const int64_t target = WholeNanoseconds(plan->cost.seconds / plan->segments);
  std::vector<int32_t> parts =
      StepParts(StepCosts(ranks, schedule, request.rates), std::max<int64_t>(1, target));
  const int64_t peak = PeakOfParts(schedule, ranks, parts);
  // The parts have other lifetimes of buffers. If they do not fit, the steps stay whole.
  if (peak > request.max_device_bytes) {
    plan->longest_step =
        absl::Nanoseconds(LongestStep(ranks, StepCosts(ranks, schedule, UnhurriedRates(request))));
    return absl::OkStatus();
  }
  plan->parts_of_step = std::move(parts);
  plan->cost.peak_bytes_per_rank = peak;
  return absl::OkStatus();
}

}  // namespace

PlanResult MakeJobPlan(const PlanRequest& request) {
  std::vector<int32_t> sizes = request.sizes;
  const StagingLimit limit = LimitOf(request);
  absl::Status too_large;
  while (true) {
    absl::StatusOr<std::shared_ptr<JobPlan>> made = PlanForSizes(request, sizes);
    // Fewer workers had an execution; more workers have none.
    if (!too_large.ok() && NoWay(made.status())) return too_large;
    ASSIGN_OR_RETURN(std::shared_ptr<JobPlan> plan, std::move(made));
    const int64_t largest = LargestShard(plan->bytes);
    if (largest <= limit.bytes) {
      RETURN_IF_ERROR(CutLongJob(request, plan.get()));
      return std::shared_ptr<const JobPlan>(std::move(plan));
    }
    // A job that one worker cannot stage may fit if more workers share it.
    const int32_t size = plan->world_size();
    sizes.erase(std::remove_if(sizes.begin(), sizes.end(), [&](int32_t s) { return s <= size; }),
                sizes.end());
    too_large = TooLarge(largest, limit);
    if (sizes.empty() || request.execution.world_size != 0) return too_large;
  }
}

}  // namespace annulus
