#ifndef ANNULUS_WORKER_COMM_BIND_ADDRESS_H_
#define ANNULUS_WORKER_COMM_BIND_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"

namespace annulus {

struct BindAddress {
  sockaddr_storage storage = {};  // The port is 0.
  socklen_t length = 0;
};

// Resolves `host` (an address or name of this machine) or `interface` (a network interface) to an
// address of this machine. Give exactly one. INVALID_ARGUMENT: none or both are given, the host is
// unknown, or the address is a wildcard, which peers cannot call. UNAVAILABLE: the address cannot
// be bound here.
absl::StatusOr<BindAddress> ResolveBindAddress(const std::string& host,
                                               const std::string& interface);

// The name of the network interface that has the address of `host`, or `interface` itself. Errors
// as for ResolveBindAddress; also UNAVAILABLE if no interface of this machine has the address.
absl::StatusOr<std::string> InterfaceOf(const std::string& host, const std::string& interface);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_BIND_ADDRESS_H_
