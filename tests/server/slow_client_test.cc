// A client that does not read its events loses its call and its job. No other client is affected.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "annulus/control/v1/control.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/status.h"
#include "server/coordinator_server.h"
#include "tests/server/coordinator/messages.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

constexpr int32_t kSteps = 20000;

// A worker that answers commands at once without computing.
class PromptWorker {
 public:
  PromptWorker(const std::string& address, const std::string& slot)
      : stub_(control::v1::WorkerControl::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Connect(&context_)) {
    WorkerEvent event;
    *event.mutable_register_() = SmallWorker(slot, "i" + slot);
    event.mutable_register_()->set_device_limit_bytes(1 << 30);
    // With such rates a small job has many segments.
    event.mutable_register_()
        ->mutable_rates()
        ->mutable_kernels(0)
        ->mutable_rates(0)
        ->set_pair_seconds(32);
    stream_->Write(event);
    thread_ = std::thread([this] {
      WorkerCommand command;
      while (stream_->Read(&command)) Execute(command);
    });
  }
  ~PromptWorker() {
    context_.TryCancel();
    thread_.join();
    stream_->Finish();
  }

 private:
  void Execute(const WorkerCommand& command) {
    term_ = command.term();
    ack_ = std::max(ack_, command.id());
    std::optional<WorkerEvent> answer = AnswerTo(command, kSteps);
    if (command.has_reserve()) {  // No client uploads.
      *answer.emplace().mutable_shard_complete()->mutable_shard() = command.reserve().shard();
    }
    if (!answer.has_value()) return;
    WorkerEvent& event = *answer;
    event.set_term(term_);
    event.set_ack(ack_);
    event.set_id(++sent_);
    stream_->Write(event);
  }

  grpc::ClientContext context_;
  std::unique_ptr<control::v1::WorkerControl::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<WorkerEvent, WorkerCommand>> stream_;
  int64_t term_ = 0, ack_ = 0, sent_ = 0;
  std::thread thread_;
};

class SlowClientTest : public testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServer::Options options;
    options.address = options.control_address = "127.0.0.1:0";
    // Workers send no beats.
    options.coordinator.beat_interval = absl::Seconds(100);
    options.coordinator.lease = absl::Seconds(300);
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    for (const char* slot : {"w0", "w1"}) {
      workers_.push_back(std::make_unique<PromptWorker>(server_->control_address(), slot));
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // Keeps windows at their initial size.
    jobs_ = v1::Jobs::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }
  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
    return context;
  }
  // Retries until two workers are registered and the job is accepted.
  std::unique_ptr<grpc::ClientReader<v1::JobEvent>> Start(
      std::unique_ptr<grpc::ClientContext>* context, v1::JobEvent* first) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::Now() < deadline) {
      *context = Context();
      auto reader = jobs_->RunJob(context->get(), SmallRequest(2, 8, 16));
      if (reader->Read(first)) return reader;
      last_ = FromGrpcStatus(reader->Finish());
    }
    return nullptr;
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::vector<std::unique_ptr<PromptWorker>> workers_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  absl::Status last_;
};

TEST_F(SlowClientTest, LosesItsCallAndItsJob) {
  std::unique_ptr<grpc::ClientContext> context;
  v1::JobEvent event;
  auto reader = Start(&context, &event);
  ASSERT_NE(reader, nullptr) << last_;
  v1::GetJobRequest get;
  get.set_job_id(event.job_id());
  v1::Job job;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (job.state() < v1::Job::STATE_SUCCEEDED && absl::Now() < deadline) {
    ASSERT_TRUE(jobs_->GetJob(Context().get(), get, &job).ok());
  }
  EXPECT_EQ(job.state(), v1::Job::STATE_CANCELLED) << job.ShortDebugString();
  int progress = 0;
  while (reader->Read(&event)) progress += event.has_progress();
  EXPECT_GT(progress, 0);
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(DetailOf(status).reason, "SLOW_CLIENT");
}

}  // namespace
}  // namespace annulus
