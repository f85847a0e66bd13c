// The coordinator's server over real gRPC on loopback.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "annulus/control/v1/control.grpc.pb.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "attention/error.h"
#include "attention/schedule.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "server/coordinator_server.h"

namespace annulus {
namespace {

using grpc::health::v1::HealthCheckResponse;

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServer::Options options;
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
  static v1::RunJobRequest Request() {
    v1::RunJobRequest request;
    v1::AttentionSpec& spec = *request.mutable_spec();
    spec.set_dtype(v1::DATA_TYPE_FP32);
    spec.set_q_heads(1);
    spec.set_kv_heads(1);
    spec.set_head_dim(4);
    spec.add_sequences()->set_q_len(8);
    spec.mutable_sequences(0)->set_kv_len(8);
    return request;
  }
  // A worker that registers, and then does nothing.
  using Stream = grpc::ClientReaderWriter<control::v1::WorkerEvent, control::v1::WorkerCommand>;
  std::unique_ptr<Stream> Register(grpc::ClientContext* context) {
    control_ = control::v1::WorkerControl::NewStub(
        grpc::CreateChannel(server_->control_address(), grpc::InsecureChannelCredentials()));
    auto stream = control_->Connect(context);
    control::v1::WorkerEvent event;
    control::v1::Register& info = *event.mutable_register_();
    info.set_slot("w0");
    info.set_incarnation("i");
    info.set_ticket_key(std::string(32, 'k'));
    info.set_data_endpoint("127.0.0.1:1");
    info.set_staging_limit_bytes(1 << 20);
    info.set_device_limit_bytes(1 << 20);
    info.set_flops_per_second(1e9);
    info.set_link_bytes_per_second(1e9);
    info.set_schedule_version(kScheduleVersion);
    info.set_protocol_version(control::v1::PROTOCOL_VERSION_CURRENT);
    EXPECT_TRUE(stream->Write(event));
    control::v1::WorkerCommand command;
    EXPECT_TRUE(stream->Read(&command));
    EXPECT_TRUE(command.has_welcome());
    return stream;
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
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
  auto reader = jobs_->RunJob(context.get(), Request());
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

TEST_F(ServerTest, BadRequestsAreRefusedBeforeTheBrain) {
  v1::RunJobRequest request = Request();
  request.mutable_spec()->set_kv_heads(3);
  request.mutable_spec()->set_q_heads(4);
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = request.spec();
  v1::Plan response;
  const absl::Status status = FromGrpcStatus(jobs_->PlanJob(Context().get(), plan, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(DetailOf(status).fields.empty());
  v1::Job job;
  v1::GetJobRequest get;
  get.set_job_id("job-x");
  EXPECT_EQ(DetailOf(FromGrpcStatus(jobs_->GetJob(Context().get(), get, &job))).reason,
            "JOB_NOT_FOUND");
}

TEST_F(ServerTest, UnknownFieldsAreRefusedAtEveryEntry) {
  const std::string unknown = "\x98\x06\x01";  // Field 99.
  v1::AttentionSpec spec = Request().spec();
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
  v1::RunJobRequest run = Request();
  ASSERT_TRUE(run.mutable_execution()->MergeFromString(unknown));
  v1::JobEvent event;
  auto run_context = Context();
  auto reader = jobs_->RunJob(run_context.get(), run);
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(field(reader->Finish()), "execution.99");
  run = Request();
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
  auto attend_context = Context();
  auto stream = attention->Attend(attend_context.get());
  v1::AttendRequest start;
  *start.mutable_start()->mutable_spec() = spec;
  EXPECT_TRUE(stream->Write(start));
  v1::AttendResponse answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(field(stream->Finish()), "spec.sequences[0].99");
}

TEST_F(ServerTest, JobIsPlacedOnARegisteredWorkerAndCancelledWithItsCall) {
  auto worker_context = Context();
  auto worker = Register(worker_context.get());
  // The Welcome is sent before readiness is told.
  while (Health(server_->address(), "readiness") != HealthCheckResponse::SERVING) {
  }
  auto context = Context();
  auto reader = jobs_->RunJob(context.get(), Request());
  v1::JobEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.state_changed().state(), v1::Job::STATE_UPLOADING);
  const std::string job_id = event.state_changed().job_id();
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.placed().shards(0).endpoint(), "127.0.0.1:1");
  control::v1::WorkerCommand command;
  ASSERT_TRUE(worker->Read(&command));
  EXPECT_EQ(command.reserve().shard().job_id(), job_id);
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

TEST_F(ServerTest, DrainRefusesStopsAndShutdownEndsOpenStreams) {
  auto context = Context();
  auto stream = Register(context.get());
  server_->Drain();
  EXPECT_TRUE(server_->WaitUntilDrained(absl::Now() + absl::Seconds(10)));
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
