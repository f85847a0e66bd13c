#include "server/gateway/local_run_job.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/steady_time.h"
#include "gtest/gtest.h"
#include "server/coordinator/planning/planner.h"
#include "server/coordinator/state/submission.h"
#include "tests/server/coordinator/messages.h"

namespace annulus {
namespace {

// The posting thread handles the event, so everything here happens on this thread, in order.
class LocalRunJobTest : public testing::Test {
 protected:
  struct Link final : LinkSink {
    void Send(Command) override {}
    void Close(const absl::Status&) override {}
  };
  struct Info final : CallSink {
    void Send(v1::JobEvent) override {}
    void Finish(const absl::Status&) override {}
    void Answer(absl::StatusOr<Value> value) override { info = std::get<v1::ServerInfo>(*value); }
    v1::ServerInfo info;
  };

  void Start(PlanFunction plan = MakeJobPlan) {
    coordinator_.beat_interval = absl::Minutes(10);  // The worker sends no beats.
    coordinator_.lease = absl::Hours(1);
    CoordinatorLoop::Options options;
    options.plan = std::move(plan);
    options.random = [n = uint64_t{0}]() mutable { return ++n; };
    options.clock = [this] { return SteadyNow() + absl::Seconds(ahead_.load()); };
    options.coordinator = coordinator_;
    loop_ = std::make_unique<CoordinatorLoop>(std::move(options));
    event::WorkerReported said;
    said.connection = loop_->NewNumber();
    *said.event.mutable_register_() = SmallWorker("w0", "i");
    EXPECT_TRUE(loop_->PostLink(said.connection, std::make_shared<Link>(), said).ok());
  }
  void TearDown() override {
    if (loop_ != nullptr) loop_->Stop();
  }
  std::shared_ptr<RunJobCall> Run(const v1::RunJobRequest& request,
                                  absl::Time deadline = absl::InfiniteFuture()) {
    RunJobCall::Handlers handlers;
    handlers.on_event = [this](const v1::JobEvent& event) {
      EXPECT_TRUE(ends_.empty()) << "the end is last";
      events_.push_back(event);
      info_ = Ask();
    };
    handlers.on_done = [this](absl::Status status) {
      ends_.push_back(std::move(status));
      info_ = Ask();
    };
    return LocalRunJob(loop_.get(), coordinator_)(request, deadline, std::move(handlers));
  }
  v1::ServerInfo Ask() {
    auto sink = std::make_shared<Info>();
    const int64_t call = loop_->NewNumber();
    loop_->PostCall(call, sink, event::GetServerInfo{call}).IgnoreError();
    return sink->info;
  }
  // Reason of the only end.
  std::string Reason() { return ends_.size() == 1 ? DetailOf(ends_[0]).reason : "no single end"; }

  CoordinatorOptions coordinator_;
  std::atomic<int> ahead_{0};  // The coordinator loop's clock, in seconds.
  std::unique_ptr<CoordinatorLoop> loop_;
  std::vector<v1::JobEvent> events_;
  std::vector<absl::Status> ends_;
  v1::ServerInfo info_;  // At the last event or end.
};

TEST_F(LocalRunJobTest, ARequestIsValidatedAsAnyOther) {
  Start();
  v1::RunJobRequest request = SmallRequest(1, 4, 4);
  request.mutable_spec()->set_head_dim(-1);
  const auto call = Run(request);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kInvalidArgument) << ends_[0];
  call->Cancel();
  EXPECT_EQ(ends_.size(), 1u);
}

TEST_F(LocalRunJobTest, EventsComeBesideTheBrainsTurn) {
  Start();
  const auto call = Run(SmallRequest(1, 4, 4));
  ASSERT_FALSE(events_.empty());
  EXPECT_TRUE(ends_.empty());
  EXPECT_EQ(info_.version(), Ask().version()) << "a handler's question was answered at once";
  EXPECT_NE(info_.version(), "");
}

TEST_F(LocalRunJobTest, ACancelledCallEndsOnceAndItsJobWithIt) {
  Start();
  const auto call = Run(SmallRequest(1, 4, 4));
  const v1::ServerInfo before = Ask();
  EXPECT_EQ(before.queued_jobs() + before.running_jobs(), 1);
  call->Cancel();
  call->Cancel();
  loop_->Stop();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(info_.queued_jobs() + info_.running_jobs(), 0)
      << "the coordinator loop had heard of it";
}

TEST_F(LocalRunJobTest, TheBrainsEndIsTheCalls) {
  Start([](const PlanRequest&) -> PlanResult { return absl::UnimplementedError("not here"); });
  const auto call = Run(SmallRequest(1, 4, 4));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kUnimplemented) << ends_[0];
}

TEST_F(LocalRunJobTest, TheCallsDeadlineIsTheJobs) {
  Start();
  const auto late = Run(SmallRequest(1, 4, 4), SteadyNow() - absl::Seconds(1));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), absl::StatusCode::kDeadlineExceeded) << ends_[0];
  ends_.clear();
  const auto in_time = Run(SmallRequest(1, 4, 4), SteadyNow() + absl::Hours(1));
  EXPECT_TRUE(ends_.empty());
}

TEST_F(LocalRunJobTest, ACallThatJoinsAJobEndsAtItsOwnDeadline) {
  Start();
  v1::RunJobRequest request = SmallRequest(1, 4, 4);
  request.set_request_id("r");
  const auto first = Run(request);
  std::promise<absl::Status> end;  // Set on this thread, or on the timer's.
  std::future<absl::Status> ended = end.get_future();
  RunJobCall::Handlers handlers;
  handlers.on_event = [](const v1::JobEvent&) {};
  handlers.on_done = [&end](absl::Status status) { end.set_value(std::move(status)); };
  const auto joins = LocalRunJob(loop_.get(), coordinator_)(
      request, SteadyNow() + absl::Seconds(20), std::move(handlers));
  ahead_ = 19;
  Ask();
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ahead_ = 21;
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const absl::Status status = ended.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(ends_.empty());
  EXPECT_EQ(Ask().running_jobs(), 1) << "the job goes on";
}

// Once at the caller, and once at the coordinator.
TEST_F(LocalRunJobTest, ARequestCountsTwice) {
  v1::RunJobRequest request = SmallRequest(1, 4, 4);
  request.set_request_id("r");
  coordinator_.max_request_bytes = (*MakeSubmission(request, coordinator_))->bytes * 7 / 2;
  Start();
  const auto first = Run(request);
  const auto joins = Run(request);
  EXPECT_EQ(Reason(), "QUEUE_FULL");
  ends_.clear();
  first->Cancel();
  ends_.clear();
  const auto next = Run(request);
  EXPECT_TRUE(ends_.empty());
}

TEST_F(LocalRunJobTest, AStoppedBrainEndsCallsAndRefusesNewOnes) {
  Start();
  const auto call = Run(SmallRequest(1, 4, 4));
  EXPECT_TRUE(ends_.empty());
  loop_->Stop();
  EXPECT_EQ(Reason(), "DRAINING");
  ends_.clear();
  const auto late = Run(SmallRequest(1, 4, 4));
  EXPECT_EQ(Reason(), "DRAINING");
  loop_.reset();
  call->Cancel();
  late->Cancel();
  EXPECT_EQ(ends_.size(), 1u);
}

}  // namespace
}  // namespace annulus
