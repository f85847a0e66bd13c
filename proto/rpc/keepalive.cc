#include "proto/rpc/keepalive.h"

#include "grpc/grpc.h"

namespace annulus {
namespace {

int Milliseconds(absl::Duration time) { return static_cast<int>(absl::ToInt64Milliseconds(time)); }

}  // namespace

std::map<std::string, int> Keepalive(absl::Duration time, absl::Duration timeout) {
  return {{GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(time)},
          {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(timeout)},
          // A call that waits for its outputs sends nothing for a long time.
          {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0}};
}

std::map<std::string, int> ServerKeepalive(absl::Duration time, absl::Duration timeout,
                                           absl::Duration least_apart) {
  std::map<std::string, int> arguments = Keepalive(time, timeout);
  arguments[GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS] = 1;
  arguments[GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS] = Milliseconds(least_apart);
  return arguments;
}

}  // namespace annulus
