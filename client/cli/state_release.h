#ifndef ANNULUS_CLIENT_CLI_STATE_RELEASE_H_
#define ANNULUS_CLIENT_CLI_STATE_RELEASE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace annulus {

// When a command lets go of a kept state: not before its answer is where it is to be. A state that
// nobody knows (NOT_FOUND) is as good as released.

// ReleaseState of the job.
using ReleaseCall = std::function<absl::Status(const std::string& job_id)>;

// The state that gradients were made by, which are verified and written now. Why it is not known
// whether it is released; else empty.
std::string ReleaseUsed(const std::string& job_id, const ReleaseCall& release);

// The state of a forward job whose answer was not taken, with `error`: nobody would hear its name.
// Returns the error, with the job's name where it may keep its state.
absl::Status ReleaseUnasked(const std::string& job_id, const absl::Status& error,
                            const ReleaseCall& release);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_STATE_RELEASE_H_
