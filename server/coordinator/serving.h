#ifndef ANNULUS_SERVER_COORDINATOR_SERVING_H_
#define ANNULUS_SERVER_COORDINATOR_SERVING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/control/v1/control.pb.h"
#include "server/coordinator/state/coordinator_tables.h"
#include "server/coordinator/state/submission.h"

namespace annulus {

// Workers differ in the features that they serve. A job is given to workers that serve it.

// The reason why a worker does not serve a feature of the capability table; nullopt if it does.
std::optional<std::string> WhyLacking(const control::v1::Register& worker,
                                      absl::string_view feature);

// True if the worker serves every feature that the job uses.
bool Serves(const control::v1::Register& worker, const Submission& job);

// True if the first `size` of `workers` serve the job. Unknown workers do not.
bool FirstServe(const CoordinatorTables& tables, const std::vector<int64_t>& workers, size_t size,
                const Submission& job);

// True if present workers could run the job on `size` ranks: a ready worker, or the first ranks of
// a present or future group. `family`: CoordinatorTables::Family.
bool HasServers(const CoordinatorTables& tables, const std::vector<std::vector<int64_t>>& family,
                int32_t size, const Submission& job);

// The error of forming one of the groups on which the job could run with `size` ranks. OK if no
// formation of any has failed.
absl::Status FormationError(const CoordinatorTables& tables, int32_t size, const Submission& job);

// The number of ready workers that serve the job.
int32_t ServerCount(const CoordinatorTables& tables, const Submission& job);

// FAILED_PRECONDITION / MIXED_WORKERS for a deterministic job while workers that may run it compute
// with different bits. Its answer would then depend on where it runs. OK for jobs that use a state,
// which run on the workers of the state.
absl::Status CheckAlike(const CoordinatorTables& tables, const Submission& job);

// OK if a ready worker serves the job. Otherwise UNAVAILABLE / NO_WORKERS if a worker that is not
// ready now serves it, or UNIMPLEMENTED / NOT_SERVED with the features that a ready worker lacks.
absl::Status CheckAnyServes(const CoordinatorTables& tables, const Submission& job);

// Checks that workers can serve a request with `world_size` ranks (0: one), in this order:
// - the error of CheckAlike;
// - OK if HasServers;
// - the error of CheckAnyServes;
// - OK if every ready worker serves the job: others may still come;
// - FAILED_PRECONDITION / INSUFFICIENT_WORKERS if some workers serve it, but too few, or not in one
//   group.
absl::Status CheckServers(const CoordinatorTables& tables, int32_t world_size,
                          const Submission& job);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SERVING_H_
