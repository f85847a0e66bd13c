#include "server/services/health_service.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "tests/server/raw_call.h"

namespace annulus {
namespace {

using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public testing::Test {
 protected:
  HealthServiceTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()));
  }
  ~HealthServiceTest() override { service_.Stop(); }

  HealthService service_{[] { return true; }, /*max_watches=*/2};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
};

struct OpenWatch {
  OpenWatch(grpc::health::v1::Health::Stub* stub) : call(stub->Watch(&context, {})) {}
  bool Hears() { return call->Read(&response); }
  grpc::ClientContext context;
  HealthCheckResponse response;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> call;
};

TEST_F(HealthServiceTest, OpenWatchesAreBounded) {
  std::vector<std::unique_ptr<OpenWatch>> watches;
  for (int i = 0; i < 2; ++i) {
    watches.push_back(std::make_unique<OpenWatch>(stub_.get()));
    EXPECT_TRUE(watches.back()->Hears());
  }
  OpenWatch refused(stub_.get());
  EXPECT_FALSE(refused.Hears());
  EXPECT_EQ(refused.call->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  service_.SetReady(true);
  for (const auto& watch : watches) {
    EXPECT_TRUE(watch->Hears());
    EXPECT_EQ(watch->response.status(), HealthCheckResponse::SERVING);
  }
  service_.Stop();
  for (const auto& watch : watches) {
    EXPECT_FALSE(watch->Hears());
    EXPECT_EQ(watch->call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(HealthServiceTest, AWatchKeepsNothingOfItsRequest) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(3000, 'x'));
  WatchedMessage message(request);
  RawCall watch(server_->InProcessChannel({}), "/grpc.health.v1.Health/Watch");
  ASSERT_TRUE(watch.WriteLast(message.Take()));
  grpc::ByteBuffer answer;
  ASSERT_TRUE(watch.Read(&answer));
  EXPECT_TRUE(message.AwaitGone());
  service_.Stop();
  EXPECT_FALSE(watch.Read(&answer)) << "it was open";
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, UnknownFieldsAreRefused) {
  grpc::health::v1::HealthCheckRequest request;
  ASSERT_TRUE(request.MergeFromString("\x98\x06\x01"));  // Field 99.
  const auto reason = [](const grpc::Status& status) {
    return DetailOf(FromGrpcStatus(status)).reason;
  };
  grpc::ClientContext check_context, watch_context;
  watch_context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  HealthCheckResponse response;
  EXPECT_EQ(reason(stub_->Check(&check_context, request, &response)), "UNKNOWN_FIELD");
  EXPECT_EQ(reason(stub_->Watch(&watch_context, request)->Finish()), "UNKNOWN_FIELD");
}

}  // namespace
}  // namespace annulus
