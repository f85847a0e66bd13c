// Calls of Jobs whose callers do not read up to the end are let go of.

#include <memory>
#include <string>
#include <utility>

#include "annulus/v1/jobs.grpc.pb.h"
#include "base/steady_time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/unread_answers.h"
#include "server/coordinator/planner.h"
#include "server/services/brain.h"
#include "server/services/jobs_service.h"
#include "tests/server/messages.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

// A worker that hears nothing and answers nothing.
class DeafLink final : public LinkSink {
 public:
  void Send(Command) override {}
  void Close(const absl::Status&) override {}
};

Brain::Options BrainOptions() {
  Brain::Options options;
  options.plan = MakeJobPlan;
  options.random = [n = uint64_t{0}]() mutable { return ++n; };
  options.coordinator.beat_interval = absl::Seconds(100);  // It does not beat.
  options.coordinator.lease = absl::Seconds(300);
  return options;
}

class UnreadAnswerTest : public testing::Test {
 protected:
  // Callers who do not read are given so much time.
  void Start(absl::Duration patience) {
    service_ = std::make_unique<JobsService>(&brain_, BrainOptions().coordinator, patience);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    jobs_ = v1::Jobs::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                                                  grpc::InsecureChannelCredentials()));
    control::v1::WorkerEvent event;
    *event.mutable_register_() = SmallWorker("w0", "i0");
    const int64_t link = brain_.NewNumber();
    ASSERT_TRUE(
        brain_
            .PostLink(link, std::make_shared<DeafLink>(), event::WorkerSaid{link, std::move(event)})
            .ok());
  }
  ~UnreadAnswerTest() override {
    brain_.Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  std::unique_ptr<UnreadCall> Unread(const std::string& method,
                                     const google::protobuf::MessageLite& request) {
    return std::make_unique<UnreadCall>(port_, "/annulus.v1.Jobs/" + method, request);
  }
  // The first job that is there.
  std::string AJob() {
    v1::ListJobsResponse jobs;
    for (const absl::Time end = SteadyNow() + kLong; SteadyNow() < end && jobs.jobs_size() == 0;) {
      grpc::ClientContext context;
      EXPECT_TRUE(jobs_->ListJobs(&context, {}, &jobs).ok());
    }
    return jobs.jobs_size() == 0 ? "" : jobs.jobs(0).job_id();
  }
  void Cancel(const std::string& job) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id(job);
    v1::Job answer;
    EXPECT_TRUE(jobs_->CancelJob(&context, request, &answer).ok());
  }

  Brain brain_{BrainOptions()};
  std::unique_ptr<JobsService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  int port_ = 0;
};

// Their events wait for the callers, and the end behind them.
TEST_F(UnreadAnswerTest, CallsThatFollowAJobEndSoonAfterIt) {
  Start(absl::Milliseconds(50));
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  v1::WatchJobRequest watch_request;
  watch_request.set_job_id(AJob());
  const auto watch = Unread("WatchJob", watch_request);
  EXPECT_FALSE(run->EndsWithin(absl::Milliseconds(200)));
  Cancel(watch_request.job_id());
  EXPECT_TRUE(run->EndsWithin(kLong));
  EXPECT_TRUE(watch->EndsWithin(kLong));
}

TEST_F(UnreadAnswerTest, UnaryCallsEndSoonAfterTheirAnswer) {
  Start(absl::Milliseconds(50));
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  v1::GetJobRequest get;
  get.set_job_id(AJob());
  v1::CancelJobRequest cancel;
  cancel.set_job_id(get.job_id());
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = SmallRequest(1, 8, 16).spec();
  EXPECT_TRUE(Unread("PlanJob", plan)->EndsWithin(kLong));
  EXPECT_TRUE(Unread("GetJob", get)->EndsWithin(kLong));
  EXPECT_TRUE(Unread("ListJobs", v1::ListJobsRequest())->EndsWithin(kLong));
  EXPECT_TRUE(Unread("CancelJob", cancel)->EndsWithin(kLong));
}

TEST_F(UnreadAnswerTest, AnAnswerMakesRoomForOthers) {
  Start(kLong);
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  v1::GetJobRequest request;
  request.set_job_id(AJob());
  const auto get = Unread("GetJob", request);
  EXPECT_FALSE(get->EndsWithin(absl::Milliseconds(200)));
  UnreadAnswers& others = UnreadAnswers::Get();
  others.Remove(others.Add(UnreadAnswers::Limits().bytes, [] {}));
  EXPECT_TRUE(get->EndsWithin(kLong / 2));
}

TEST_F(UnreadAnswerTest, TheRequestCountsBesideItsAnswer) {
  Start(kLong);
  v1::PlanJobRequest request;
  *request.mutable_spec() = SmallRequest(1, 8, 16).spec();
  constexpr int kHeads = 1000;
  request.mutable_spec()->set_q_heads(kHeads);
  for (int i = 0; i < kHeads; ++i) request.mutable_spec()->mutable_modifiers()->add_sinks(1);
  grpc::ClientContext context;
  v1::Plan plan;
  const grpc::Status planned = jobs_->PlanJob(&context, request, &plan);
  ASSERT_TRUE(planned.ok()) << planned.error_message();
  ASSERT_LT(plan.ByteSizeLong(), request.ByteSizeLong() / 2);
  const auto unread = Unread("PlanJob", request);
  bool counted = false;
  for (const absl::Time end = SteadyNow() + kLong / 4; SteadyNow() < end && !counted;) {
    EXPECT_FALSE(unread->EndsWithin(absl::Milliseconds(1)));
    counted = UnreadAnswers::Get().bytes() > request.ByteSizeLong();
  }
  EXPECT_TRUE(counted);
}

TEST_F(UnreadAnswerTest, AnAnswerIsKeptForAWhile) {
  Start(kLong);
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  v1::GetJobRequest get;
  get.set_job_id(AJob());
  EXPECT_FALSE(Unread("GetJob", get)->EndsWithin(absl::Milliseconds(200)));
}

}  // namespace
}  // namespace annulus
