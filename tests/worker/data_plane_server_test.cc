// Connections of a worker's data plane.
#include "worker/data_plane_server.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "base/error.h"
#include "proto/wire/status.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {
namespace {

// Sends the beginning of an HTTP/2 connection and nothing more. Reads time out after 20 s.
int ConnectAndSayHello(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  hello += std::string("\0\0\0\4\0\0\0\0\0", 9);  // Empty SETTINGS.
  EXPECT_EQ(write(fd, hello.data(), hello.size()), static_cast<ssize_t>(hello.size()));
  return fd;
}

class DataPlaneServerTest : public testing::Test {
 protected:
  static ShardBoard::Options Board() {
    ShardBoard::Options options;
    options.now = options.wall = absl::Now;
    options.report = [](const control::v1::WorkerEvent&) {};
    return options;
  }
  DataPlaneServer::Options Options() {
    DataPlaneServer::Options options;
    options.address = "127.0.0.1:0";
    options.board = &board_;
    options.pool = &pool_;
    return options;
  }

  ShardBoard board_{Board()};
  CopyPool pool_{1};
};

TEST_F(DataPlaneServerTest, APortThatIsTakenIsNamed) {
  const auto first = DataPlaneServer::Start(Options());
  ASSERT_TRUE(first.ok()) << first.status();
  DataPlaneServer::Options options = Options();
  options.address = absl::StrCat("127.0.0.1:", (*first)->port());
  const absl::Status taken = DataPlaneServer::Start(options).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailOf(taken).reason, "CANNOT_LISTEN");
  EXPECT_EQ(DetailOf(taken).metadata["address"], options.address);
}

TEST_F(DataPlaneServerTest, AClientThatIsGoneLosesItsConnection) {
  DataPlaneServer::Options options = Options();
  options.keepalive_time = absl::Milliseconds(100);
  options.keepalive_timeout = absl::Milliseconds(100);
  const auto server = DataPlaneServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = ConnectAndSayHello((*server)->port());
  char bytes[4096];
  ssize_t got = 0;
  do {  // Reads settings and pings without answering.
    got = read(fd, bytes, sizeof(bytes));
  } while (got > 0);
  EXPECT_EQ(got, 0) << "the connection is still there";
  close(fd);
}

TEST_F(DataPlaneServerTest, WhoShowsNoTicketKeepsItNotBusy) {
  const auto server = DataPlaneServer::Start(Options());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::DataPlane::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", (*server)->port()), grpc::InsecureChannelCredentials()));
  const auto status = [&](const std::string& ticket, grpc_compression_algorithm compression) {
    grpc::ClientContext context;
    context.set_compression_algorithm(compression);
    v1::GetShardStatusRequest request;
    request.set_ticket(ticket);
    v1::ShardStatus answer;
    return FromGrpcStatus(stub->GetShardStatus(&context, request, &answer));
  };
  EXPECT_EQ(DetailOf(status(std::string(100 << 10, 'x'), GRPC_COMPRESS_NONE)).reason,
            "LIMIT_EXCEEDED");
  EXPECT_EQ(status("none", GRPC_COMPRESS_NONE).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status(std::string(1000, 'x'), GRPC_COMPRESS_GZIP).code(),
            absl::StatusCode::kUnimplemented);
}

// The field for which a call is refused, although its ticket is invalid too.
template <typename Call>
std::string UnknownFieldOf(Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const ErrorDetail detail = DetailOf(FromGrpcStatus(call(&context)));
  EXPECT_EQ(detail.reason, "UNKNOWN_FIELD");
  return detail.fields.empty() ? "" : detail.fields[0].field;
}

TEST_F(DataPlaneServerTest, UnknownFieldsOfRequestsAreRefused) {
  const std::string unknown = "\x98\x06\x01";  // Field 99.
  const auto server = DataPlaneServer::Start(Options());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::DataPlane::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", (*server)->port()), grpc::InsecureChannelCredentials()));
  v1::GetShardStatusRequest status;
  ASSERT_TRUE(status.MergeFromString(unknown));
  EXPECT_EQ(UnknownFieldOf([&](grpc::ClientContext* context) {
              v1::ShardStatus answer;
              return stub->GetShardStatus(context, status, &answer);
            }),
            "99");
  const auto fetch = [&](const v1::FetchShardRequest& request) {
    return UnknownFieldOf([&](grpc::ClientContext* context) {
      v1::FetchShardResponse answer;
      auto reader = stub->FetchShard(context, request);
      EXPECT_FALSE(reader->Read(&answer));
      return reader->Finish();
    });
  };
  v1::FetchShardRequest request;
  request.add_parts();
  ASSERT_TRUE(request.add_parts()->MergeFromString(unknown));
  EXPECT_EQ(fetch(request), "parts[1].99");
  ASSERT_TRUE(request.MergeFromString(unknown));
  EXPECT_EQ(fetch(request), "99");
}

}  // namespace
}  // namespace annulus
