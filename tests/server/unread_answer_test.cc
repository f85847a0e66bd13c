// Memory of Jobs calls whose callers do not read is bounded, and such calls end.

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "annulus/v1/jobs.grpc.pb.h"
#include "base/steady_time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/rpc/slow_reader_guard.h"
#include "proto/rpc/slow_reader_registry.h"
#include "server/coordinator/planning/planner.h"
#include "server/services/coordinator_loop.h"
#include "server/services/jobs_service.h"
#include "server/services/worker_control_service.h"
#include "tests/server/coordinator/messages.h"
#include "tests/server/raw_call.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

// A worker that ignores all commands.
class DeafLink final : public LinkSink {
 public:
  void Send(Command) override {}
  void Close(const absl::Status&) override {}
};

CoordinatorLoop::Options CoordinatorLoopOptions() {
  CoordinatorLoop::Options options;
  options.random = [n = uint64_t{0}]() mutable { return ++n; };
  options.coordinator.beat_interval = absl::Seconds(100);  // It does not beat.
  options.coordinator.lease = absl::Seconds(300);
  return options;
}

class UnreadAnswerTest : public testing::Test {
 protected:
  // `patience`: the time limit of callers that do not read.
  void Start(absl::Duration patience) {
    CoordinatorLoop::Options options = CoordinatorLoopOptions();
    options.plan = [this](const PlanRequest& request) { return Plan(request); };
    loop_ = std::make_unique<CoordinatorLoop>(std::move(options));
    service_ =
        std::make_unique<JobsService>(loop_.get(), CoordinatorLoopOptions().coordinator, patience);
    control_ = std::make_unique<WorkerControlService>(loop_.get(), kLong, patience);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service_.get());
    builder.RegisterService(control_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    jobs_ = v1::Jobs::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                                                  grpc::InsecureChannelCredentials()));
    control::v1::WorkerEvent event;
    *event.mutable_register_() = SmallWorker("w0", "i0");
    const int64_t link = loop_->NewNumber();
    ASSERT_TRUE(loop_
                    ->PostLink(link, std::make_shared<DeafLink>(),
                               event::WorkerReported{link, std::move(event)})
                    .ok());
  }
  ~UnreadAnswerTest() override {
    loop_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  std::unique_ptr<UnreadCall> Unread(const std::string& method,
                                     const google::protobuf::MessageLite& request) {
    return std::make_unique<UnreadCall>(port_, "/annulus.v1.Jobs/" + method, request);
  }
  // The first existing job.
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

  // The planner's plan, with long text about rejected candidates.
  PlanResult Plan(const PlanRequest& request) const {
    const PlanResult plan = MakeJobPlan(request);
    if (!plan.ok() || plan_words_ == 0) return plan;
    auto with_words = std::make_shared<JobPlan>(**plan);
    with_words->rejected.emplace_back().rejected = std::string(plan_words_, 'x');
    return with_words;
  }
  int Workers() {
    struct Info final : CallSink {
      void Send(v1::JobEvent) override {}
      void Finish(const absl::Status&) override {}
      void Answer(absl::StatusOr<Value> value) override {
        if (value.ok()) workers = std::get<v1::ServerInfo>(*value).workers_size();
      }
      std::atomic<int> workers{0};
    };
    const auto info = std::make_shared<Info>();
    const int64_t call = loop_->NewNumber();
    EXPECT_TRUE(loop_->PostCall(call, info, event::GetServerInfo{call}).ok());
    return info->workers;
  }

  size_t plan_words_ = 0;
  std::unique_ptr<CoordinatorLoop> loop_;
  std::unique_ptr<JobsService> service_;
  std::unique_ptr<WorkerControlService> control_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  int port_ = 0;
};

// Their events wait for the callers, followed by the end.
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
  SlowReaderRegistry& others = SlowReaderRegistry::Get();
  others.Remove(others.Add(SlowReaderRegistry::Limits().bytes, [] {}));
  EXPECT_TRUE(get->EndsWithin(kLong / 2));
}

// Once as it was made, and once as it is sent.
TEST_F(UnreadAnswerTest, AnAnswerCountsTwice) {
  Start(kLong);
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  v1::GetJobRequest request;
  request.set_job_id(AJob());
  v1::Job job;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->GetJob(&context, request, &job).ok());
  SlowReaderRegistry& counted = SlowReaderRegistry::Get();
  for (const absl::Time end = SteadyNow() + kLong; SteadyNow() < end && counted.calls() > 0;) {
  }
  const auto get = Unread("GetJob", request);
  EXPECT_FALSE(get->EndsWithin(absl::Milliseconds(200)));
  EXPECT_EQ(counted.bytes(), 2 * job.ByteSizeLong());
}

TEST_F(UnreadAnswerTest, EventsOfACallThatGoesOnMakeRoomForOthersToo) {
  plan_words_ = 64 << 10;
  Start(kLong);
  const auto run = Unread("RunJob", SmallRequest(1, 8, 16));
  SlowReaderRegistry& others = SlowReaderRegistry::Get();
  for (const absl::Time end = SteadyNow() + kLong / 2;
       SteadyNow() < end && others.bytes() < plan_words_;) {
    EXPECT_FALSE(run->EndsWithin(absl::Milliseconds(1)));
  }
  EXPECT_GT(others.bytes(), plan_words_);
  others.Remove(others.Add(SlowReaderRegistry::Limits().bytes, [] {}));
  EXPECT_TRUE(run->EndsWithin(kLong / 2));
  EXPECT_EQ(others.bytes(), 0u);
}

TEST_F(UnreadAnswerTest, EventsThatAreReadAreNoLongerCounted) {
  plan_words_ = 64 << 10;
  Start(kLong);
  grpc::ClientContext context;
  const auto run = jobs_->RunJob(&context, SmallRequest(1, 8, 16));
  v1::JobEvent event;
  while (run->Read(&event) && !event.has_state_changed()) {
  }
  EXPECT_EQ(event.state_changed().state(), v1::Job::STATE_UPLOADING);
  SlowReaderRegistry& counted = SlowReaderRegistry::Get();
  for (const absl::Time end = SteadyNow() + kLong; SteadyNow() < end && counted.calls() > 0;) {
  }
  EXPECT_EQ(counted.calls(), 0u);
  context.TryCancel();
}

TEST_F(UnreadAnswerTest, AWorkersStreamEndsSoonAfterItIsClosed) {
  Start(absl::Milliseconds(50));
  control::v1::WorkerEvent event;
  *event.mutable_register_() = SmallWorker("w1", "i1");
  UnreadCall stream(port_, "/annulus.control.v1.WorkerControl/Connect", event,
                    UnreadCall::Manner::kStaysOpen);
  for (const absl::Time end = SteadyNow() + kLong; SteadyNow() < end && Workers() < 2;) {
  }
  ASSERT_EQ(Workers(), 2);
  EXPECT_FALSE(stream.EndsWithin(absl::Milliseconds(200))) << "it need not hurry";
  loop_->Stop();
  EXPECT_TRUE(stream.EndsWithin(kLong));
}

TEST_F(UnreadAnswerTest, ACallThatGoesOnKeepsNothingOfItsMessage) {
  Start(kLong);
  const auto channel = server_->InProcessChannel({});
  grpc::ByteBuffer answer;
  RawCall run(channel, "/annulus.v1.Jobs/RunJob");
  WatchedMessage request(SmallRequest(1, 8, 16));
  ASSERT_TRUE(run.WriteLast(request.Take()));
  ASSERT_TRUE(run.Read(&answer));
  EXPECT_TRUE(request.AwaitGone());
  v1::WatchJobRequest job;
  job.set_job_id(AJob());
  WatchedMessage watched(job);
  RawCall watch(channel, "/annulus.v1.Jobs/WatchJob");
  ASSERT_TRUE(watch.WriteLast(watched.Take()));
  ASSERT_TRUE(watch.Read(&answer));
  EXPECT_TRUE(watched.AwaitGone());
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
