#include "server/coordinator/answer_time.h"

#include <algorithm>

namespace annulus {

absl::Duration AnswerTime(const Core& core, const std::vector<int64_t>& workers) {
  absl::Duration time = core.options.answer_timeout;
  for (const auto& [number, run] : core.runs.all()) {
    const bool near = std::any_of(run.ranks.begin(), run.ranks.end(), [&](const RunRank& rank) {
      return !rank.gone && std::count(workers.begin(), workers.end(), rank.worker) != 0;
    });
    if (!near) continue;
    const absl::Duration segment =
        absl::Seconds(run.plan->cost.expected_seconds / std::max(1, run.segments));
    // Twice, as the workers' watchdogs have it.
    time += 2 * std::max(run.plan->longest_step, segment) *
            std::max(0, run.issued - run.SegmentsDone());
  }
  return time;
}

}  // namespace annulus
