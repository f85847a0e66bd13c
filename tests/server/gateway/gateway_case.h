#ifndef ANNULUS_TESTS_SERVER_GATEWAY_GATEWAY_CASE_H_
#define ANNULUS_TESTS_SERVER_GATEWAY_GATEWAY_CASE_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "annulus/v1/attention.grpc.pb.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "client/session/run_job_call.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "server/gateway/attention_service.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {

// A gateway in front of the FakeService of clients' tests.
class GatewayCallTest : public testing::Test {
 protected:
  void Start(GatewayServiceOptions options) {
    const auto coordinator =
        grpc::CreateChannel(behind_->address(), grpc::InsecureChannelCredentials());
    options.run_job = Predicting(RemoteRunJob(coordinator, {}));
    options.server_info = [](const ServerInfoReply& reply) {
      v1::ServerInfo info;
      info.set_version("1.2.3");
      reply(info);
    };
    options.worker_channel = [coordinator](const std::string&) { return coordinator; };
    gateway_ = std::make_unique<AttentionService>(std::move(options));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(gateway_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // Keeps windows at their initial size.
    stub_ = v1::Attention::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port_), grpc::InsecureChannelCredentials(), arguments));
    call_ = stub_->Attend(&context_);
  }
  ~GatewayCallTest() override {
    context_.TryCancel();
    call_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  // Plans of the wrapped starter get the test's prediction.
  RunJobStarter Predicting(RunJobStarter run_job) const {
    return
        [time = predicted_, reason = reason_, run_job = std::move(run_job)](
            const v1::RunJobRequest& request, absl::Time deadline, RunJobCall::Handlers handlers) {
          handlers.on_event = [=, next = handlers.on_event](v1::JobEvent event) {
            if (event.has_placed()) {
              *event.mutable_placed()->mutable_predicted_time() = DurationToProto(time);
              event.mutable_placed()->add_rejected()->set_reason(reason);
            }
            next(std::move(event));
          };
          return run_job(request, deadline, std::move(handlers));
        };
  }
  static absl::Time Deadline() { return SteadyNow() + absl::Seconds(30); }
  // Waits for a call to be active. False if none is.
  bool AwaitACall() {
    const absl::Time deadline = Deadline();
    while (gateway_->WaitUntilIdle(SteadyNow())) {
      if (SteadyNow() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static v1::AttendRequest Whole(const ClientJob& job) {
    v1::AttendRequest request;
    *request.mutable_start()->mutable_spec() = SpecToProto(job.spec);
    const auto add = [&](v1::TensorId id, int64_t rows, const std::vector<float>& values) {
      v1::Chunk* chunk = request.add_chunks();
      chunk->set_tensor(id);
      chunk->set_row_count(rows);
      const auto bytes = ClientJob::Bytes(values);
      chunk->set_data(bytes.data(), bytes.size());
    };
    add(v1::TENSOR_ID_K, job.spec.kv_rows(), job.kv);
    add(v1::TENSOR_ID_V, job.spec.kv_rows(), job.kv);
    add(v1::TENSOR_ID_Q, job.spec.q_rows(), job.q);
    return request;
  }
  // Sends a whole job and reads no response.
  void Send(const ClientJob& job) {
    ASSERT_TRUE(call_->Write(Whole(job)));
    ASSERT_TRUE(call_->WritesDone());
  }
  // The invalid field of a call with these messages, from its error detail. Checks that the message
  // begins with it.
  std::string FieldOf(const std::vector<v1::AttendRequest>& messages) {
    grpc::ClientContext context;
    const auto call = stub_->Attend(&context);
    for (const v1::AttendRequest& message : messages) call->Write(message);
    v1::AttendResponse response;
    while (call->Read(&response)) {
    }
    const absl::Status status = FromGrpcStatus(call->Finish());
    const ErrorDetail detail = DetailOf(status);
    const std::string field = detail.fields.empty() ? "" : detail.fields[0].field;
    EXPECT_EQ(status.message().find(field + ": "), 0u) << status;
    return field;
  }
  absl::Status End() {
    v1::AttendResponse response;
    while (call_->Read(&response)) {
    }
    return FromGrpcStatus(call_->Finish());
  }

  absl::Duration predicted_ = absl::Seconds(1);
  std::string reason_;  // The reason of a rejected candidate in plans.
  std::unique_ptr<FakeService> behind_ =
      std::make_unique<FakeService>(Script({FakeService::Act::kServe}));
  std::unique_ptr<AttentionService> gateway_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<v1::Attention::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> call_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_GATEWAY_GATEWAY_CASE_H_
