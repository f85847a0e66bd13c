#ifndef ANNULUS_PROTO_RPC_KEEPALIVE_H_
#define ANNULUS_PROTO_RPC_KEEPALIVE_H_

#include <map>
#include <string>

#include "absl/time/time.h"

namespace annulus {

// Channel arguments for keepalive, in whole milliseconds.

// An end of a connection that has received nothing for `time` pings the other end, however many
// such pings it has sent before. It closes the connection if no answer comes within `timeout`.
std::map<std::string, int> Keepalive(absl::Duration time, absl::Duration timeout);

// Same for a server. Its clients may ping once every `least_apart`, with calls and without.
std::map<std::string, int> ServerKeepalive(absl::Duration time, absl::Duration timeout,
                                           absl::Duration least_apart);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_KEEPALIVE_H_
