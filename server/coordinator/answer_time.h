#ifndef ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
#define ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_

#include <cstdint>
#include <map>
#include <vector>

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Predicted time of a run's next segment, and of its segments that are issued and not finished.
absl::Duration TimeOfSegment(const RunRecord& run);
absl::Duration TimeOfIssued(const RunRecord& run);

// Predicted time until each worker has finished its issued segments; workers without such segments
// are left out. Segments run in the order in which they were issued. Each starts when all of its
// workers have come to it.
std::map<int64_t, absl::Duration> LaneTimes(const CoordinatorTables& tables);
// The longest of these times over `workers`.
absl::Duration LongestOf(const std::map<int64_t, absl::Duration>& lanes,
                         const std::vector<int64_t>& workers);

// How long `workers` may take to answer a command that waits behind their issued segments. Single
// steps that were not split may take long, and so may all of them if segments of others come first.
absl::Duration AnswerTime(const CoordinatorTables& tables, const std::vector<int64_t>& workers);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
