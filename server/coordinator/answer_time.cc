#include "server/coordinator/answer_time.h"

#include <algorithm>

namespace annulus {

absl::Duration TimeOfSegment(const RunRecord& run) {
  const absl::Duration segment =
      absl::Seconds(run.plan->cost.expected_seconds / std::max(1, run.segments));
  return std::max(run.plan->longest_step, segment);
}

absl::Duration TimeOfIssued(const RunRecord& run) {
  return TimeOfSegment(run) * std::max(0, run.issued - run.SegmentsDone());
}

std::map<int64_t, absl::Duration> LaneTimes(const CoordinatorTables& tables) {
  std::map<int64_t, const RunRecord*> outstanding;  // By turn.
  for (const auto& [number, run] : tables.runs.all()) {
    for (int32_t segment = run.SegmentsDone(); segment < run.issued; ++segment)
      outstanding[run.turns[segment]] = &run;
  }
  std::map<int64_t, absl::Duration> lanes;
  for (const auto& [turn, run] : outstanding) {
    absl::Duration end;
    for (const RunRank& rank : run->ranks)
      if (!rank.gone) end = std::max(end, lanes[rank.worker]);
    end += TimeOfSegment(*run);
    for (const RunRank& rank : run->ranks)
      if (!rank.gone) lanes[rank.worker] = end;
  }
  return lanes;
}

absl::Duration LongestOf(const std::map<int64_t, absl::Duration>& lanes,
                         const std::vector<int64_t>& workers) {
  absl::Duration longest;
  for (const int64_t worker : workers) {
    const auto lane = lanes.find(worker);
    if (lane != lanes.end()) longest = std::max(longest, lane->second);
  }
  return longest;
}

absl::Duration AnswerTime(const CoordinatorTables& tables, const std::vector<int64_t>& workers) {
  // Twice, like the workers' watchdogs.
  return tables.options.answer_timeout + 2 * LongestOf(LaneTimes(tables), workers);
}

}  // namespace annulus
