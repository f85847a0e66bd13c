#ifndef ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_
#define ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "annulus/control/v1/control.pb.h"
#include "annulus/v1/jobs.pb.h"

namespace annulus {

// Messages of correct workers and clients, for tests of the coordinator without gRPC.

// A worker at 127.0.0.1:1 with 1 MiB of staging and of device memory, 1e9 FLOPs (at head dimension
// 16) and 1e9 bytes per second.
control::v1::Register SmallWorker(const std::string& slot, const std::string& incarnation);

// The answer of an immediate, correct worker to a command, without term, ack and id. nullopt if the
// command has no answer, or, like Reserve, needs a client.
std::optional<control::v1::WorkerEvent> AnswerTo(const control::v1::WorkerCommand& command,
                                                 int32_t steps);

// One head of 4 fp32 dimensions, one sequence.
v1::RunJobRequest SmallRequest(int32_t world_size, int64_t q_len, int64_t kv_len);

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_
