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

// Workers differ in what they serve: who is given a job is one of those that serve it.

// Why a worker serves no job that uses a feature of the capability table; nullopt: it serves such.
std::optional<std::string> WhyLacking(const control::v1::Register& worker,
                                      absl::string_view feature);

// Whether a worker lacks nothing that a job uses.
bool Serves(const control::v1::Register& worker, const Submission& job);

// Whether the first `size` of `workers` serve it; unknown ones do not.
bool FirstServe(const CoordinatorTables& tables, const std::vector<int64_t>& workers, size_t size,
                const Submission& job);

// Whether workers that are there could run it on so many ranks: one that is ready, or the first
// ones of a group that there is or will be. `family`: CoordinatorTables::Family.
bool HasServers(const CoordinatorTables& tables, const std::vector<std::vector<int64_t>>& family,
                int32_t size, const Submission& job);

// Why groups in which it could run on so many ranks cannot be formed, of one of them; OK where no
// formation of any has failed.
absl::Status FormationError(const CoordinatorTables& tables, int32_t size, const Submission& job);

// Ready workers that serve it.
int32_t ServerCount(const CoordinatorTables& tables, const Submission& job);

// FAILED_PRECONDITION / MIXED_WORKERS for a deterministic job while workers that may be given it
// differ in what decides about bits: where it runs would then show in its answer. OK for jobs that
// use a state, which those that hold it serve.
absl::Status CheckAlike(const CoordinatorTables& tables, const Submission& job);

// UNIMPLEMENTED / NOT_SERVED with what a ready worker lacks where each lacks something, or, where
// one that is not ready now lacks nothing, UNAVAILABLE / NO_WORKERS.
absl::Status CheckAnyServes(const CoordinatorTables& tables, const Submission& job);

// OK where they are alike and HasServers for the ranks that a request asks for (0: one), or no
// worker lacks anything. Else as CheckAlike, as CheckAnyServes, or, where some serve it, but too
// few or no group of them, FAILED_PRECONDITION / INSUFFICIENT_WORKERS: as where all workers are
// alike, others may come.
absl::Status CheckServers(const CoordinatorTables& tables, int32_t world_size,
                          const Submission& job);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_SERVING_H_
