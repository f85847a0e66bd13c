#ifndef ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_
#define ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "annulus/control/v1/control.pb.h"
#include "annulus/v1/jobs.pb.h"

namespace annulus {

// Messages of well-behaved workers and clients, for tests of the coordinator; no gRPC.

// A worker with 1 MiB of staging and of device memory, 1e9 FLOPs (at head dimensions of 16) and
// bytes per second, at 127.0.0.1:1.
control::v1::Register SmallWorker(const std::string& slot, const std::string& incarnation);

// What a worker that does at once what it is told says to a command; nothing where a command has no
// answer or, as Reserve, needs a client. Without term, ack and id.
std::optional<control::v1::WorkerEvent> AnswerTo(const control::v1::WorkerCommand& command,
                                                 int32_t steps);

// One head of 4 fp32, one sequence.
v1::RunJobRequest SmallRequest(int32_t world_size, int64_t q_len, int64_t kv_len);

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_COORDINATOR_MESSAGES_H_
