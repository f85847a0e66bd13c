#ifndef ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
#define ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_

#include <cstdint>
#include <map>
#include <vector>

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// How long a run's next segment is predicted to take, and those that its workers have been told to
// run.
absl::Duration TimeOfSegment(const RunRecord& run);
absl::Duration TimeOfIssued(const RunRecord& run);

// After how long each worker is predicted to be through what it has been told to run, where there
// is such: segments run in the order in which they were issued, each when all of its workers have
// come to it.
std::map<int64_t, absl::Duration> LaneTimes(const CoordinatorTables& tables);
// The longest of these workers'.
absl::Duration LongestOf(const std::map<int64_t, absl::Duration>& lanes,
                         const std::vector<int64_t>& workers);

// How long `workers` may take to answer what waits behind the segments that they have been told to
// run: those of steps that were left whole may each take long, and all where segments are, and
// others' before them.
absl::Duration AnswerTime(const CoordinatorTables& tables, const std::vector<int64_t>& workers);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
