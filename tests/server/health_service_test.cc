#include "server/services/health_service.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using grpc::health::v1::HealthCheckResponse;

struct OpenWatch {
  OpenWatch(grpc::health::v1::Health::Stub* stub) : call(stub->Watch(&context, {})) {}
  bool Hears() { return call->Read(&response); }
  grpc::ClientContext context;
  HealthCheckResponse response;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> call;
};

TEST(HealthServiceTest, OpenWatchesAreBounded) {
  HealthService service([] { return true; }, /*max_watches=*/2);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));

  std::vector<std::unique_ptr<OpenWatch>> watches;
  for (int i = 0; i < 2; ++i) {
    watches.push_back(std::make_unique<OpenWatch>(stub.get()));
    EXPECT_TRUE(watches.back()->Hears());
  }
  OpenWatch refused(stub.get());
  EXPECT_FALSE(refused.Hears());
  EXPECT_EQ(refused.call->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  service.SetReady(true);
  for (const auto& watch : watches) {
    EXPECT_TRUE(watch->Hears());
    EXPECT_EQ(watch->response.status(), HealthCheckResponse::SERVING);
  }
  service.Stop();
  for (const auto& watch : watches) {
    EXPECT_FALSE(watch->Hears());
    EXPECT_EQ(watch->call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

}  // namespace
}  // namespace annulus
