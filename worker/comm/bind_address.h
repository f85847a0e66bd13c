#ifndef ANNULUS_WORKER_COMM_BIND_ADDRESS_H_
#define ANNULUS_WORKER_COMM_BIND_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"

namespace annulus {

struct BindAddress {
  sockaddr_storage storage = {};  // Port 0.
  socklen_t length = 0;
};

// The address of this machine that `host` (an address or a name) or else the network interface
// `interface` stands for; exactly one is given. INVALID_ARGUMENT for none or both, an unknown host,
// and the wildcard address, at which no peer can call; UNAVAILABLE when it cannot be bound here.
absl::StatusOr<BindAddress> ResolveBindAddress(const std::string& host,
                                               const std::string& interface);

// The name of the network interface that has the address `host`, or `interface`. As
// ResolveBindAddress, and UNAVAILABLE where no interface of this machine has it.
absl::StatusOr<std::string> InterfaceOf(const std::string& host, const std::string& interface);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_BIND_ADDRESS_H_
