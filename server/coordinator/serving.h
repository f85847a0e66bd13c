#ifndef ANNULUS_SERVER_COORDINATOR_SERVING_H_
#define ANNULUS_SERVER_COORDINATOR_SERVING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "annulus/control/v1/control.pb.h"
#include "server/coordinator/core.h"
#include "server/coordinator/submission.h"

namespace annulus {

// Workers differ in what they serve: who is given a job is one of those that serve it.

// OK, or UNIMPLEMENTED / NOT_SERVED with what a worker lacks for a job: bf16x3, or what it says.
absl::Status CheckServedBy(const control::v1::Register& worker, const Submission& job);

// Whether the first `size` of `workers` serve it; unknown ones do not.
bool FirstServe(const Core& core, const std::vector<int64_t>& workers, size_t size,
                const Submission& job);

// Whether workers that are there could run it on so many ranks: one that is ready, or the first
// ones of a group that there is or will be.
bool HasServers(const Core& core, int32_t size, const Submission& job);

// OK where HasServers for the ranks that a request asks for (0: one), else what a ready worker
// lacks. OK, too, where none lacks anything: then workers are missing.
absl::Status CheckServers(const Core& core, int32_t world_size, const Submission& job);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SERVING_H_
