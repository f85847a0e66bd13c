#ifndef ANNULUS_TESTS_SERVER_SERVER_CASE_H_
#define ANNULUS_TESTS_SERVER_SERVER_CASE_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "annulus/v1/jobs.grpc.pb.h"
#include "gtest/gtest.h"
#include "server/coordinator_server.h"

namespace annulus {

// A coordinator's server on loopback without workers, and a client's connection to it.
class ServerCase : public testing::Test {
 protected:
  void SetUp() override { Start(CoordinatorServer::Options()); }
  void Start(CoordinatorServer::Options options) {
    options.address = options.control_address = options.health_address = "127.0.0.1:0";
    options.coordinator.lease = absl::Seconds(30);
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    jobs_ = v1::Jobs::NewStub(channel_);
  }

  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return context;
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_SERVER_CASE_H_
