#include "proto/listen.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "grpcpp/generic/async_generic_service.h"

namespace annulus {
namespace {

absl::StatusOr<ListeningServer> ListenOn(const std::string& address) {
  grpc::ServerBuilder builder;
  grpc::AsyncGenericService service;
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  auto listening = Listen(&builder, address, grpc::InsecureServerCredentials());
  if (listening.ok()) listening->server->Shutdown();
  queue->Shutdown();
  void* tag = nullptr;
  for (bool ok = false; queue->Next(&tag, &ok);) {
  }
  return listening;
}

// A port of the loopback that somebody listens to.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(ListenTest, PortZeroIsAFreeOneAndMayBeTakenAgain) {
  const auto first = ListenOn("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->port, 0);
  const auto again = ListenOn(absl::StrCat("127.0.0.1:", first->port));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->port, first->port);
}

TEST(ListenTest, EveryFormOfAnAddressIsTaken) {
  for (const char* address : {"localhost:0", "0.0.0.0:0", "[::]:0"}) {
    EXPECT_TRUE(ListenOn(address).ok()) << address;
  }
}

TEST(ListenTest, APortThatIsTakenIsTheCauseAndGrpcLogsNothing) {
  const TakenPort taken;
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    const std::string address = absl::StrCat(host, ":", taken.port());
    testing::internal::CaptureStderr();
    const absl::Status status = ListenOn(address).status();
    const std::string logged = testing::internal::GetCapturedStderr();
    if (status.ok()) continue;  // A localhost that is IPv6's too.
    EXPECT_EQ(logged, "");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(),
              absl::StrCat("cannot listen on ", address, ": address already in use"));
    EXPECT_EQ(DetailOf(status).reason, "CANNOT_LISTEN");
    EXPECT_EQ(DetailOf(status).metadata["address"], address);
  }
  EXPECT_FALSE(ListenOn(absl::StrCat("127.0.0.1:", taken.port())).ok());
}

TEST(ListenTest, AnAddressOfAnotherMachineIsTheCause) {
  EXPECT_EQ(ListenOn("203.0.113.9:0").status().message(),
            "cannot listen on 203.0.113.9:0: cannot assign requested address");
  EXPECT_TRUE(absl::StartsWith(ListenOn("no-such-host.invalid:0").status().message(),
                               "cannot listen on no-such-host.invalid:0: "));
}

}  // namespace
}  // namespace annulus
