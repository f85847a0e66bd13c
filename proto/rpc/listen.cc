#include "proto/rpc/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace annulus {
namespace {

absl::Status CannotListen(const std::string& address, absl::string_view cause) {
  return MakeError(absl::StatusCode::kUnavailable,
                   absl::StrCat("cannot listen on ", address, cause.empty() ? "" : ": ", cause),
                   ErrorDetail{"CANNOT_LISTEN", {{"address", address}}, {}, {}});
}

// Binds a socket as gRPC does, and lets go of it: it never listens, so that nobody connects to it
// and no other who tries at the same time is kept out. Returns errno.
int TryToBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  const int error = bind(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// Of the addresses of a name gRPC takes those that it gets, and fails where it gets none.
int TryToBindAny(const addrinfo* addresses) {
  int error = 0;
  for (const addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    const int one = TryToBind(*each);
    if (one == 0) return 0;
    if (error != EADDRINUSE) error = one;
  }
  return error;
}

// Why `address` cannot be bound; empty where it can be, or where that is for gRPC to find out.
std::string WhyNot(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "";
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int unknown = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &list);
  if (unknown != 0) return absl::AsciiStrToLower(gai_strerror(unknown));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  const int error = TryToBindAny(list);
  // Without IPv6 gRPC listens to all of IPv4 where all of both was asked for.
  if (error == 0 || error == EAFNOSUPPORT) return "";
  return absl::AsciiStrToLower(std::generic_category().message(error));
}

}  // namespace

absl::StatusOr<ListeningServer> Listen(
    grpc::ServerBuilder* builder, const std::string& address,
    const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  // Before gRPC tries: it keeps the cause to itself, but for some lines of JSON in a log of its
  // own, which can be silenced only for the whole process. Where another process takes the port
  // between here and there, those lines appear, and the error is without a cause.
  if (const std::string why = WhyNot(address); !why.empty()) return CannotListen(address, why);
  ListeningServer listening;
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddListeningPort(address, credentials, &listening.port);
  grpc::ResourceQuota quota;
  builder->SetResourceQuota(quota.SetMaxThreads(kMaxBlockingCalls + 1));  // One waits for others.
  listening.server = builder->BuildAndStart();
  if (listening.server == nullptr || listening.port == 0) return CannotListen(address, "");
  return listening;
}

}  // namespace annulus
