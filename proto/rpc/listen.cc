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

// Binds a socket like gRPC and closes it. The socket never listens: nobody connects to it, and it
// does not block another process that tries at the same time. Returns errno.
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

// gRPC binds those addresses of a name that it can bind, and fails if it can bind none.
int TryToBindAny(const addrinfo* addresses) {
  int error = 0;
  for (const addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    const int one = TryToBind(*each);
    if (one == 0) return 0;
    if (error != EADDRINUSE) error = one;
  }
  return error;
}

// The reason why `address` cannot be bound. Empty if it can be bound, or if only gRPC can find out.
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
  // Without IPv6, gRPC listens on all IPv4 addresses if all addresses of both versions are
  // requested.
  if (error == 0 || error == EAFNOSUPPORT) return "";
  return absl::AsciiStrToLower(std::generic_category().message(error));
}

}  // namespace

absl::StatusOr<ListeningServer> Listen(
    grpc::ServerBuilder* builder, const std::string& address,
    const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  // Must come before gRPC tries. gRPC does not report the cause; it only logs it as JSON, and that
  // log can be silenced only for the whole process. If another process takes the port between this
  // check and gRPC's attempt, the log lines appear, and the error has no cause.
  if (const std::string why = WhyNot(address); !why.empty()) return CannotListen(address, why);
  ListeningServer listening;
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddListeningPort(address, credentials, &listening.port);
  grpc::ResourceQuota quota;
  builder->SetResourceQuota(quota.SetMaxThreads(kMaxBlockingCalls + 1));  // One waits for calls.
  listening.server = builder->BuildAndStart();
  if (listening.server == nullptr || listening.port == 0) return CannotListen(address, "");
  return listening;
}

}  // namespace annulus
