#ifndef ANNULUS_PROTO_RPC_KEEPALIVE_H_
#define ANNULUS_PROTO_RPC_KEEPALIVE_H_

#include <map>
#include <string>

#include "absl/time/time.h"

namespace annulus {

// Channel arguments, in whole milliseconds.

// An end of a connection on which nothing came for `time` asks the other one for a sign of life,
// however many such pings went before, and closes it when none comes within `timeout`.
std::map<std::string, int> Keepalive(absl::Duration time, absl::Duration timeout);

// The same of a server, whose clients may ping it as often as each `least_apart`, with calls and
// without.
std::map<std::string, int> ServerKeepalive(absl::Duration time, absl::Duration timeout,
                                           absl::Duration least_apart);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_KEEPALIVE_H_
