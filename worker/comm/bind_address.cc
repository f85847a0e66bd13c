#include "worker/comm/bind_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

BindAddress AddressOf(const sockaddr* address) {
  BindAddress found;
  found.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&found.storage, address, found.length);
  return found;
}

bool IsInternet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

bool IsWildcard(const BindAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr == INADDR_ANY;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&six);
}

absl::StatusOr<BindAddress> OfHost(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no address for host \"", host, "\": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (IsInternet(a->ai_addr)) return AddressOf(a->ai_addr);
  }
  return absl::InvalidArgumentError(absl::StrCat("no internet address for host \"", host, "\""));
}

absl::StatusOr<BindAddress> OfInterface(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::UnavailableError(absl::StrCat("network interfaces: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (interface == i->ifa_name && IsInternet(i->ifa_addr)) return AddressOf(i->ifa_addr);
  }
  return absl::UnavailableError(absl::StrCat("no address at interface \"", interface, "\""));
}

bool SameAddress(const sockaddr* a, const BindAddress& b) {
  const BindAddress other = AddressOf(a);
  if (other.storage.ss_family != b.storage.ss_family) return false;
  if (b.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(other.storage).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b.storage).sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(other.storage).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b.storage).sin6_addr,
                     sizeof(in6_addr)) == 0;
}

absl::Status TryToBind(const BindAddress& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound =
      fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0;
  const std::string problem = bound ? "" : std::strerror(errno);
  if (fd >= 0) close(fd);
  return bound ? absl::OkStatus() : absl::UnavailableError(problem);
}

}  // namespace

absl::StatusOr<BindAddress> ResolveBindAddress(const std::string& host,
                                               const std::string& interface) {
  if (host.empty() == interface.empty()) {
    return absl::InvalidArgumentError("give either a host or a network interface to bind to");
  }
  ASSIGN_OR_RETURN(const BindAddress address, host.empty() ? OfInterface(interface) : OfHost(host));
  const absl::string_view name = host.empty() ? interface : host;
  if (IsWildcard(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" is not an address to which peers can connect"));
  }
  const absl::Status bound = TryToBind(address);
  if (!bound.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot bind \"", name, "\": ", bound.message()));
  }
  return address;
}

absl::StatusOr<std::string> InterfaceOf(const std::string& host, const std::string& interface) {
  ASSIGN_OR_RETURN(const BindAddress address, ResolveBindAddress(host, interface));
  if (!interface.empty()) return interface;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::UnavailableError(absl::StrCat("network interfaces: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (IsInternet(i->ifa_addr) && SameAddress(i->ifa_addr, address)) return i->ifa_name;
  }
  return absl::UnavailableError(absl::StrCat("no interface has the address of \"", host, "\""));
}

}  // namespace annulus
