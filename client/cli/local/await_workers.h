#ifndef ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_
#define ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"

namespace annulus {

// What waiting needs of the world.
struct AwaitContext {
  // GetServerInfo with a limit for the call.
  std::function<absl::StatusOr<v1::ServerInfo>(absl::Duration limit)> ask;
  std::function<absl::Time()> now;
  std::function<void(absl::Duration)> sleep;
};

int ReadyWorkers(const v1::ServerInfo& info);

// Asks until so many workers are ready: a coordinator that is not there yet (UNAVAILABLE) or does
// not answer a call in its time (DEADLINE_EXCEEDED) is asked again. After `timeout` the last error,
// or DEADLINE_EXCEEDED / NO_WORKERS. With 0 workers wanted one call is made and tells.
absl::StatusOr<v1::ServerInfo> AwaitWorkers(int64_t wanted, absl::Duration timeout,
                                            const AwaitContext& context);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_AWAIT_WORKERS_H_
