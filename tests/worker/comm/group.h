#ifndef ANNULUS_TESTS_WORKER_COMM_GROUP_H_
#define ANNULUS_TESTS_WORKER_COMM_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace annulus {

using Group = std::vector<std::unique_ptr<Communicator>>;

// Makes the communicators of a new group by rank, not connected.
using GroupFactory = std::function<Group(int32_t size)>;

// A group whose ranks are threads of this process: through a hub, or over TCP on loopback.
Group InProcessGroup(int32_t size, absl::Duration max_delay, uint64_t seed);
Group GlooGroup(int32_t size);
// Its ranks soon give up on a missing rank.
Group GlooGroupThatGivesUpSoon(int32_t size);

// Long enough for any machine that makes progress.
absl::Time TestDeadline();

// Runs body(rank) on one thread per rank. Returns every rank's status.
std::vector<absl::Status> RunRanks(int32_t ranks, const std::function<absl::Status(int32_t)>& body);

// Bootstraps and connects all ranks of a group.
std::vector<absl::Status> ConnectAll(Group& group, absl::Time deadline);

// A connected group. On failure, reports a test failure and returns an empty group.
Group ConnectedGroup(const GroupFactory& make, int32_t size);

// The first error of `statuses`, with its rank in the message.
absl::Status FirstError(const std::vector<absl::Status>& statuses);

// The process's group of that size, with random message delays. Jobs share it, as in a worker.
Group& DelayedGroup(int32_t size);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_GROUP_H_
