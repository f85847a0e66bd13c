#ifndef ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
#define ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_

#include <vector>

#include "server/coordinator/core.h"

namespace annulus {

// How long `workers` may take to answer what waits behind the segments that they have been told to
// run: those of steps that were left whole may each take long, and all where segments are.
absl::Duration AnswerTime(const Core& core, const std::vector<int64_t>& workers);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_ANSWER_TIME_H_
