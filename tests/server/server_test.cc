// The coordinator's server over real gRPC on loopback.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "annulus/control/v1/control.grpc.pb.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/coordinator_server.h"
#include "tests/server/coordinator/messages.h"
#include "tests/server/server_case.h"

namespace annulus {
namespace {

using grpc::health::v1::HealthCheckResponse;

// Repeats `ask` until the answer is `wanted`.
testing::AssertionResult Becomes(const std::function<std::string()>& ask,
                                 const std::string& wanted) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  std::string last;
  while (absl::Now() < deadline) {
    last = ask();
    if (last == wanted) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "still " << last;
}

class ServerTest : public ServerCase {
 protected:
  HealthCheckResponse::ServingStatus Health(const std::string& address, const std::string& name,
                                            grpc::StatusCode* code = nullptr) {
    auto stub = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(name);
    HealthCheckResponse response;
    const grpc::Status status = stub->Check(Context().get(), request, &response);
    if (code != nullptr) *code = status.error_code();
    return response.status();
  }
  std::string Readiness() {
    return HealthCheckResponse::ServingStatus_Name(Health(server_->address(), "readiness"));
  }
  // A worker that registers and then does nothing.
  using Stream = grpc::ClientReaderWriter<control::v1::WorkerEvent, control::v1::WorkerCommand>;
  std::unique_ptr<Stream> Register(grpc::ClientContext* context) {
    control_ = control::v1::WorkerControl::NewStub(
        grpc::CreateChannel(server_->control_address(), grpc::InsecureChannelCredentials()));
    auto stream = control_->Connect(context);
    control::v1::WorkerEvent event;
    *event.mutable_register_() = SmallWorker("w0", "i");
    EXPECT_TRUE(stream->Write(event));
    control::v1::WorkerCommand command;
    EXPECT_TRUE(stream->Read(&command));
    EXPECT_TRUE(command.has_welcome());
    return stream;
  }

  std::unique_ptr<control::v1::WorkerControl::Stub> control_;
};

TEST_F(ServerTest, PortsAreReportedAndATakenOneFailsStart) {
  EXPECT_NE(server_->address(), "127.0.0.1:0");
  CoordinatorServer::Options options;
  options.address = server_->address();
  options.control_address = "127.0.0.1:0";
  const auto second = CoordinatorServer::Start(options);
  EXPECT_EQ(DetailOf(second.status()).reason, "CANNOT_LISTEN");
}

TEST_F(ServerTest, WithoutWorkersNothingIsReadyAndJobsAreRefusedWithTheirReason) {
  auto context = Context();
  auto reader = jobs_->RunJob(context.get(), SmallRequest(/*world_size=*/0, 8, 8));
  v1::JobEvent event;
  EXPECT_FALSE(reader->Read(&event));
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailOf(status).reason, "NO_WORKERS");
  for (const char* name : {"", "readiness", "annulus.v1.Attention", "annulus.v1.Jobs"}) {
    EXPECT_EQ(Health(server_->address(), name), HealthCheckResponse::NOT_SERVING) << name;
  }
  EXPECT_EQ(Health(server_->health_address(), "liveness"), HealthCheckResponse::SERVING);
  grpc::StatusCode code;
  Health(server_->address(), "nonsense", &code);
  EXPECT_EQ(code, grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, ABadRequestIsRefusedBeforeWorkersAreLookedFor) {
  v1::RunJobRequest request = SmallRequest(/*world_size=*/0, 8, 8);
  request.mutable_spec()->set_kv_heads(3);
  request.mutable_spec()->set_q_heads(4);
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = request.spec();
  v1::Plan response;
  const absl::Status status = FromGrpcStatus(jobs_->PlanJob(Context().get(), plan, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(DetailOf(status).fields.empty());
  *plan.mutable_spec() = SmallRequest(/*world_size=*/0, 8, 8).spec();
  EXPECT_EQ(DetailOf(FromGrpcStatus(jobs_->PlanJob(Context().get(), plan, &response))).reason,
            "NO_WORKERS");
  v1::Job job;
  v1::GetJobRequest get;
  get.set_job_id("job-x");
  EXPECT_EQ(DetailOf(FromGrpcStatus(jobs_->GetJob(Context().get(), get, &job))).reason,
            "JOB_NOT_FOUND");
}

TEST_F(ServerTest, UnknownFieldsAreRefusedAtEveryEntry) {
  const std::string unknown = "\x98\x06\x01";  // Field 99.
  v1::AttentionSpec spec = SmallRequest(/*world_size=*/0, 8, 8).spec();
  ASSERT_TRUE(spec.mutable_sequences(0)->MergeFromString(unknown));
  const auto field = [](const grpc::Status& status) {
    const ErrorDetail detail = DetailOf(FromGrpcStatus(status));
    EXPECT_EQ(detail.reason, "UNKNOWN_FIELD");
    return detail.fields.empty() ? "" : detail.fields[0].field;
  };
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = spec;
  v1::Plan planned;
  EXPECT_EQ(field(jobs_->PlanJob(Context().get(), plan, &planned)), "spec.sequences[0].99");
  v1::RunJobRequest run = SmallRequest(/*world_size=*/0, 8, 8);
  ASSERT_TRUE(run.mutable_execution()->MergeFromString(unknown));
  v1::JobEvent event;
  auto run_context = Context();
  auto reader = jobs_->RunJob(run_context.get(), run);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(field(reader->Finish()), "execution.99");
  run = SmallRequest(/*world_size=*/0, 8, 8);
  ASSERT_TRUE(run.MergeFromString(unknown));
  auto again_context = Context();
  reader = jobs_->RunJob(again_context.get(), run);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(field(reader->Finish()), "99");
  auto attention = v1::Attention::NewStub(channel_);
  v1::AttendInlineRequest tensors;
  *tensors.mutable_spec() = spec;
  v1::AttendInlineResponse response;
  EXPECT_EQ(field(attention->AttendInline(Context().get(), tensors, &response)),
            "spec.sequences[0].99");
  v1::GetServerInfoRequest info;
  ASSERT_TRUE(info.MergeFromString(unknown));
  v1::ServerInfo answered;
  EXPECT_EQ(field(attention->GetServerInfo(Context().get(), info, &answered)), "99");
  auto attend_context = Context();
  auto stream = attention->Attend(attend_context.get());
  v1::AttendRequest start;
  *start.mutable_start()->mutable_spec() = spec;
  EXPECT_TRUE(stream->Write(start));
  v1::AttendResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(field(stream->Finish()), "start.spec.sequences[0].99");
}

TEST_F(ServerTest, AttendNamesFieldsOfItsStart) {
  auto context = Context();
  auto stream = v1::Attention::NewStub(channel_)->Attend(context.get());
  v1::AttendRequest request;
  *request.mutable_start()->mutable_spec() = SmallRequest(/*world_size=*/0, 8, 8).spec();
  request.mutable_start()->set_request_id("a b");
  EXPECT_TRUE(stream->Write(request));
  v1::AttendResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  const ErrorDetail detail = DetailOf(FromGrpcStatus(stream->Finish()));
  ASSERT_EQ(detail.fields.size(), 1u) << detail.reason;
  EXPECT_EQ(detail.fields[0].field, "start.request_id");
}

TEST_F(ServerTest, UnknownFieldsOfQuestionsAboutJobsAreRefused) {
  const std::string unknown = "\x98\x06\x01";  // Field 99.
  const auto reason = [](const grpc::Status& status) {
    return DetailOf(FromGrpcStatus(status)).reason;
  };
  v1::Job job;
  v1::GetJobRequest get;
  v1::CancelJobRequest cancel;
  v1::ReleaseStateRequest release;
  v1::ListJobsRequest list;
  v1::WatchJobRequest watch;
  for (google::protobuf::Message* request :
       std::initializer_list<google::protobuf::Message*>{&get, &cancel, &release, &list, &watch}) {
    ASSERT_TRUE(request->MergeFromString(unknown));
  }
  EXPECT_EQ(reason(jobs_->GetJob(Context().get(), get, &job)), "UNKNOWN_FIELD");
  EXPECT_EQ(reason(jobs_->CancelJob(Context().get(), cancel, &job)), "UNKNOWN_FIELD");
  EXPECT_EQ(reason(jobs_->ReleaseState(Context().get(), release, &job)), "UNKNOWN_FIELD");
  v1::ListJobsResponse jobs;
  EXPECT_EQ(reason(jobs_->ListJobs(Context().get(), list, &jobs)), "UNKNOWN_FIELD");
  auto context = Context();
  auto reader = jobs_->WatchJob(context.get(), watch);
  v1::JobEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reason(reader->Finish()), "UNKNOWN_FIELD");
}

TEST_F(ServerTest, JobIsPlacedOnARegisteredWorkerAndCancelledWithItsCall) {
  auto worker_context = Context();
  auto worker = Register(worker_context.get());
  // The Welcome is sent before readiness changes.
  EXPECT_TRUE(Becomes([&] { return Readiness(); }, "SERVING"));
  auto context = Context();
  auto reader = jobs_->RunJob(context.get(), SmallRequest(/*world_size=*/0, 8, 8));
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.placed().shards(0).endpoint(), "127.0.0.1:1");
  const std::string job_id = event.job_id();
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.state_changed().state(), v1::Job::STATE_UPLOADING);
  control::v1::WorkerCommand command;
  ASSERT_TRUE(worker->Read(&command));
  EXPECT_EQ(command.reserve().shard().job_id(), job_id);
  EXPECT_EQ(command.reserve().spec().SerializeAsString(),
            SmallRequest(/*world_size=*/0, 8, 8).spec().SerializeAsString());
  auto info_stub = v1::Attention::NewStub(channel_);
  v1::ServerInfo info;
  ASSERT_TRUE(info_stub->GetServerInfo(Context().get(), {}, &info).ok());
  EXPECT_GT(info.workers(0).staging().used_bytes(), 0);
  context->TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  ASSERT_TRUE(worker->Read(&command));
  EXPECT_EQ(command.drop().shard().job_id(), job_id);
  v1::GetJobRequest get;
  get.set_job_id(job_id);
  v1::Job job;
  ASSERT_TRUE(jobs_->GetJob(Context().get(), get, &job).ok());
  EXPECT_EQ(job.state(), v1::Job::STATE_CANCELLED);
  worker_context->TryCancel();
}

TEST_F(ServerTest, OpenAttendCallsAreBounded) {
  CoordinatorServer::Options options;
  options.max_attend_calls = 2;
  Start(options);
  auto worker_context = Context();
  auto worker = Register(worker_context.get());
  EXPECT_TRUE(Becomes([&] { return Readiness(); }, "SERVING"));
  auto attention = v1::Attention::NewStub(channel_);
  v1::AttendRequest start;
  *start.mutable_start()->mutable_spec() = SmallRequest(/*world_size=*/0, 8, 8).spec();
  v1::AttendResponse answer;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  const auto open = [&] {
    contexts.push_back(Context());
    auto call = attention->Attend(contexts.back().get());
    call->Write(start);
    return call;
  };
  std::vector<decltype(open())> inside;
  for (int i = 0; i < 2; ++i) {
    inside.push_back(open());
    ASSERT_TRUE(inside.back()->Read(&answer));
    EXPECT_TRUE(answer.has_accepted());
  }
  const absl::Status refused = FromGrpcStatus(open()->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).reason, "TOO_MANY_CALLS");
  EXPECT_TRUE(DetailOf(refused).retry_after.has_value());
  v1::AttendInlineRequest inline_request;
  *inline_request.mutable_spec() = SmallRequest(/*world_size=*/0, 8, 8).spec();
  inline_request.mutable_synthetic()->set_seed(1);
  v1::AttendInlineResponse response;
  EXPECT_EQ(
      DetailOf(FromGrpcStatus(attention->AttendInline(Context().get(), inline_request, &response)))
          .reason,
      "TOO_MANY_CALLS");
  contexts[0]->TryCancel();
  EXPECT_TRUE(Becomes([&] { return open()->Read(&answer) ? "accepted" : "refused"; }, "accepted"));
  for (auto& context : contexts) context->TryCancel();
  worker_context->TryCancel();
}

TEST_F(ServerTest, ADrainDoesNotWaitForAttendCallsWithoutAStart) {
  auto attention = v1::Attention::NewStub(channel_);
  auto context = Context();
  auto call = attention->Attend(context.get());
  server_->Drain();
  EXPECT_TRUE(server_->WaitUntilDrained(SteadyNow() + absl::Seconds(30)));
  context->TryCancel();
}

TEST_F(ServerTest, CallsOnOneConnectionAreBoundedAtEveryPort) {
  CoordinatorServer::Options options;
  options.max_streams_per_connection = 3;
  Start(options);
  for (const std::string& address :
       {server_->address(), server_->control_address(), server_->health_address()}) {
    auto stub = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    const grpc::health::v1::HealthCheckRequest request;
    HealthCheckResponse response;
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>> watches;
    for (int i = 0; i < 3; ++i) {
      contexts.push_back(Context());
      watches.push_back(stub->Watch(contexts.back().get(), request));
      EXPECT_TRUE(watches.back()->Read(&response));
    }
    auto waits = Context();
    waits->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    EXPECT_EQ(stub->Check(waits.get(), request, &response).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
    contexts[0]->TryCancel();
    EXPECT_TRUE(stub->Check(Context().get(), request, &response).ok());
    for (auto& context : contexts) context->TryCancel();
  }
}

TEST_F(ServerTest, AWorkerThatSaysNothingLosesItsStream) {
  CoordinatorServer::Options options;
  options.register_wait = absl::Seconds(2);  // Also for the known worker.
  Start(options);
  auto known_context = Context(), silent_context = Context();
  auto known = Register(known_context.get());
  auto silent = control_->Connect(silent_context.get());
  control::v1::WorkerCommand command;
  EXPECT_FALSE(silent->Read(&command));
  const absl::Status status = FromGrpcStatus(silent->Finish());
  EXPECT_NE(status.message().find("no message arrived"), std::string::npos) << status;
  EXPECT_TRUE(Becomes([&] { return Readiness(); }, "SERVING")) << "who has spoken has time";
  known_context->TryCancel();
}

TEST_F(ServerTest, AWatchIsToldEachChangeOfHealth) {
  auto stub = grpc::health::v1::Health::NewStub(channel_);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("readiness");
  HealthCheckResponse response;
  auto ready_context = Context(), unknown_context = Context(), worker_context = Context();
  auto ready = stub->Watch(ready_context.get(), request);
  ASSERT_TRUE(ready->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  auto worker = Register(worker_context.get());
  ASSERT_TRUE(ready->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  request.set_service("nonsense");
  auto unknown = stub->Watch(unknown_context.get(), request);
  ASSERT_TRUE(unknown->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  server_->Drain();
  ASSERT_TRUE(ready->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->Shutdown();
  EXPECT_FALSE(ready->Read(&response));
  EXPECT_EQ(ready->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  unknown->Finish();
}

TEST_F(ServerTest, DrainRefusesStopsAndShutdownEndsOpenStreams) {
  auto context = Context();
  auto stream = Register(context.get());
  server_->Drain();
  EXPECT_TRUE(server_->WaitUntilDrained(SteadyNow() + absl::Seconds(10)));
  EXPECT_EQ(Health(server_->address(), ""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Health(server_->address(), "liveness"), HealthCheckResponse::SERVING);
  server_->Shutdown();
  control::v1::WorkerCommand command;
  while (stream->Read(&command)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace annulus
