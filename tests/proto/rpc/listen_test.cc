#include "proto/rpc/listen.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "tests/base/gate.h"

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

// A loopback port that is in use.
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
    if (status.ok()) continue;  // Here localhost is also an IPv6 address.
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

// A service whose Watch blocks its thread until the test continues it.
class Watched final : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Watch(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                     grpc::ServerWriter<grpc::health::v1::HealthCheckResponse>* writer) override {
    writer->Write({});
    gate_.Pass();
    return grpc::Status::OK;
  }
  void GoOn() { gate_.Open(); }

 private:
  Gate gate_;
};

TEST(ListenTest, CallsThatKeepAThreadAreBounded) {
  constexpr int kCalls = 40;
  Watched service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto listening = Listen(&builder, "127.0.0.1:0", grpc::InsecureServerCredentials());
  ASSERT_TRUE(listening.ok()) << listening.status();
  const auto stub = grpc::health::v1::Health::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", listening->port), grpc::InsecureChannelCredentials()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>>> taken;
  grpc::health::v1::HealthCheckResponse response;
  int refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    auto call = stub->Watch(contexts.back().get(), {});
    if (call->Read(&response)) {
      taken.push_back(std::move(call));
    } else {
      refused += call->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    }
  }
  EXPECT_EQ(static_cast<int>(taken.size()), kMaxBlockingCalls);
  EXPECT_EQ(refused, kCalls - kMaxBlockingCalls);
  service.GoOn();
  for (const auto& call : taken) {
    EXPECT_FALSE(call->Read(&response));
    EXPECT_TRUE(call->Finish().ok());
  }
  listening->server->Shutdown();
}

}  // namespace
}  // namespace annulus
