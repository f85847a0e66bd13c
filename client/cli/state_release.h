#ifndef ANNULUS_CLIENT_CLI_STATE_RELEASE_H_
#define ANNULUS_CLIENT_CLI_STATE_RELEASE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace annulus {

// A command releases a kept state only after its answer is written. NOT_FOUND (the state is
// unknown) counts as released.

// Calls ReleaseState for the job.
using ReleaseCall = std::function<absl::Status(const std::string& job_id)>;

// Releases the state that a gradients job has used, after its answer is verified and written.
// Returns why it is unknown if the state is released; else an empty string.
std::string ReleaseUsed(const std::string& job_id, const ReleaseCall& release);

// Releases the state of a forward job whose answer failed with `error`, since no other process has
// its name. Returns `error`, with the job's id if the state may still be kept.
absl::Status ReleaseUnasked(const std::string& job_id, const absl::Status& error,
                            const ReleaseCall& release);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_STATE_RELEASE_H_
