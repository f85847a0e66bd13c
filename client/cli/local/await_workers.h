#ifndef ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_
#define ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"

namespace annulus {

// The external functions that AwaitWorkers() uses.
struct AwaitContext {
  // GetServerInfo with a time limit for the call.
  std::function<absl::StatusOr<v1::ServerInfo>(absl::Duration limit)> ask;
  std::function<absl::Time()> now;
  std::function<void(absl::Duration)> sleep;
};

int ReadyWorkers(const v1::ServerInfo& info);

// Calls `ask` until `wanted` workers are ready. UNAVAILABLE (no coordinator yet) and
// DEADLINE_EXCEEDED (no answer in 10 s) are retried. After `timeout`: the last error, or
// DEADLINE_EXCEEDED / NO_WORKERS if there was an answer. With `wanted` 0: one call and its result.
absl::StatusOr<v1::ServerInfo> AwaitWorkers(int64_t wanted, absl::Duration timeout,
                                            const AwaitContext& context);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_
