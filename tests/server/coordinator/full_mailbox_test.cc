// Errors of calls over gRPC while the coordinator's mailbox is full.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "annulus/control/v1/control.grpc.pb.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/coordinator_server.h"
#include "tests/server/coordinator/messages.h"

namespace annulus {
namespace {

class FullMailboxTest : public testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServer::Options options;
    options.address = options.control_address = "127.0.0.1:0";
    options.max_mail = 0;
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }
  static void ExpectFull(const grpc::Status& end) {
    const absl::Status status = FromGrpcStatus(end);
    const ErrorDetail detail = DetailOf(status);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(detail.reason, "QUEUE_FULL");
    EXPECT_EQ(detail.retry_after, CoordinatorOptions().retry_after);
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
};

TEST_F(FullMailboxTest, RefusesAQuestion) {
  v1::Job job;
  ExpectFull(v1::Jobs::NewStub(channel_)->GetJob(&context_, {}, &job));
}

TEST_F(FullMailboxTest, RefusesADryRun) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = SmallRequest(0, 0, 0).spec();
  v1::Plan plan;
  ExpectFull(v1::Jobs::NewStub(channel_)->PlanJob(&context_, request, &plan));
}

TEST_F(FullMailboxTest, RefusesAJob) {
  const auto stub = v1::Jobs::NewStub(channel_);
  const auto stream = stub->RunJob(&context_, SmallRequest(0, 0, 0));
  v1::JobEvent event;
  EXPECT_FALSE(stream->Read(&event));
  ExpectFull(stream->Finish());
}

TEST_F(FullMailboxTest, RefusesAQuestionToTheGateway) {
  v1::ServerInfo info;
  ExpectFull(v1::Attention::NewStub(channel_)->GetServerInfo(&context_, {}, &info));
}

TEST_F(FullMailboxTest, RefusesAWorker) {
  const auto stub = control::v1::WorkerControl::NewStub(
      grpc::CreateChannel(server_->control_address(), grpc::InsecureChannelCredentials()));
  const auto stream = stub->Connect(&context_);
  control::v1::WorkerEvent event;
  *event.mutable_register_() = SmallWorker("w0", "i");
  EXPECT_TRUE(stream->Write(event));
  control::v1::WorkerCommand command;
  EXPECT_FALSE(stream->Read(&command));
  ExpectFull(stream->Finish());
}

}  // namespace
}  // namespace annulus
