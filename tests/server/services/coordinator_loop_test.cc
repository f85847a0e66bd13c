#include "server/services/coordinator_loop.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "server/coordinator/state/submission.h"
#include "tests/server/coordinator/messages.h"

namespace annulus {
namespace {

// Without gRPC, so that ThreadSanitizer sees all code.
class TestSink final : public CallSink {
 public:
  void Send(v1::JobEvent) override { ++events; }
  void Finish(const absl::Status& status) override { End(status); }
  void Answer(absl::StatusOr<Value> value) override { End(value.status()); }

  absl::Status Wait() {
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!done_ && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return done_ ? status_ : absl::DeadlineExceededError("the call did not end");
  }

  std::atomic<int> events{0};
  std::atomic<int> ends{0};

 private:
  void End(const absl::Status& status) {
    ++ends;
    MutexLock lock(&mutex_);
    status_ = status;
    done_ = true;
    changed_.SignalAll();
  }
  Mutex mutex_;
  CondVar changed_;
  bool done_ GUARDED_BY(mutex_) = false;
  absl::Status status_ GUARDED_BY(mutex_);
};

CoordinatorLoop::Options TestOptions() {
  CoordinatorLoop::Options options;
  options.plan = [](const PlanRequest&) -> PlanResult {
    return absl::UnimplementedError("not here");
  };
  options.random = [n = uint64_t{0}]() mutable { return ++n; };
  return options;
}

TEST(CoordinatorLoopTest, AnswersFromManyThreadsAndEndsEveryCallOnce) {
  CoordinatorLoop loop(TestOptions());
  std::vector<std::shared_ptr<TestSink>> sinks(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < sinks.size(); i += 4) {
        sinks[i] = std::make_shared<TestSink>();
        const int64_t call = loop.NewNumber();
        const bool unknown = i % 2 == 0;
        if (unknown) {
          EXPECT_TRUE(
              loop.PostCall(call, sinks[i], event::GetJob{call, "anonymous", "job-x"}).ok());
        } else {
          EXPECT_TRUE(loop.PostCall(call, sinks[i], event::GetServerInfo{call}).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(DetailOf(sinks[i]->Wait()).reason, i % 2 == 0 ? "JOB_NOT_FOUND" : "");
  }
  EXPECT_TRUE(loop.FreshWithin(absl::Seconds(10)));
  loop.Stop();
  for (const auto& sink : sinks) EXPECT_EQ(sink->ends, 1);
}

TEST(CoordinatorLoopTest, AStoppedBrainRefusesCalls) {
  CoordinatorLoop loop(TestOptions());
  auto sink = std::make_shared<TestSink>();
  loop.Stop();
  const int64_t call = loop.NewNumber();
  EXPECT_EQ(DetailOf(loop.PostCall(call, sink, event::GetServerInfo{call})).reason, "DRAINING");
  EXPECT_EQ(sink->ends, 0) << "a refused sink is not used";
  loop.Stop();
}

TEST(CoordinatorLoopTest, DrainOfAnIdleCoordinatorStops) {
  CoordinatorLoop::Options options = TestOptions();
  auto stopped = std::make_shared<TestSink>();
  options.on_stopped = [stopped] { stopped->Finish(absl::OkStatus()); };
  CoordinatorLoop loop(options);
  EXPECT_TRUE(loop.Post(event::Drain{}).ok());
  EXPECT_TRUE(stopped->Wait().ok());
}

TEST(CoordinatorLoopTest, TimersRunWithoutMail) {
  CoordinatorLoop::Options options = TestOptions();
  options.coordinator.lease = absl::Milliseconds(60);
  options.coordinator.beat_interval = absl::Milliseconds(20);
  auto not_ready = std::make_shared<TestSink>();
  options.on_ready = [not_ready](bool ready) {
    if (!ready) not_ready->Finish(absl::OkStatus());
  };
  struct Link final : LinkSink {
    void Send(Command) override {}
    void Close(const absl::Status&) override {}
  };
  CoordinatorLoop loop(options);
  event::WorkerReported said;
  said.connection = loop.NewNumber();
  *said.event.mutable_register_() = SmallWorker("w0", "i");
  EXPECT_TRUE(loop.PostLink(said.connection, std::make_shared<Link>(), said).ok());
  // It never beats: its lease ends by the coordinator loop's own clock.
  EXPECT_TRUE(not_ready->Wait().ok());
}

// A loop whose planning blocks, so that events queue up behind it. The test moves the clock.
class BusyLoopTest : public testing::Test {
 protected:
  struct Link final : LinkSink {
    explicit Link(BusyLoopTest* test) : test(test) {}
    void Send(Command command) override {
      if (command.message.has_beat_answer()) test->answers_before_beat_ = test->answers_.load();
    }
    void Close(const absl::Status&) override { test->closed_ = true; }
    BusyLoopTest* const test;
  };
  struct Counted final : CallSink {
    explicit Counted(BusyLoopTest* test) : test(test) {}
    void Send(v1::JobEvent) override {}
    void Finish(const absl::Status&) override { ++test->answers_; }
    void Answer(absl::StatusOr<Value>) override { ++test->answers_; }
    BusyLoopTest* const test;
  };

  void Start(size_t max_mail) {
    CoordinatorLoop::Options options = TestOptions();
    options.max_mail = max_mail;
    options.coordinator.lease = absl::Seconds(3);
    options.clock = [this] {
      return absl::FromUnixSeconds(1000000) + absl::Seconds(seconds_.load());
    };
    options.plan = [this](const PlanRequest&) -> PlanResult {
      MutexLock lock(&mutex_);
      planning_ = true;
      changed_.SignalAll();
      while (!go_on_) changed_.Wait(&mutex_);
      return absl::UnimplementedError("not here");
    };
    loop_ = std::make_unique<CoordinatorLoop>(std::move(options));
    event::WorkerReported said;
    said.connection = link_ = loop_->NewNumber();
    *said.event.mutable_register_() = SmallWorker("w0", "i");
    EXPECT_TRUE(loop_->PostLink(link_, std::make_shared<Link>(this), said).ok());
  }
  void TearDown() override {
    GoOn();
    if (runner_.joinable()) runner_.join();
    loop_->Stop();
  }
  std::shared_ptr<TestSink> Ask(Event (*make)(int64_t call)) {
    auto sink = std::make_shared<TestSink>();
    const int64_t call = loop_->NewNumber();
    EXPECT_TRUE(loop_->PostCall(call, sink, make(call)).ok());
    return sink;
  }
  // Returns once planning has begun.
  bool AwaitPlanning() {
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!planning_ && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return planning_;
  }
  void GoOn() {
    MutexLock lock(&mutex_);
    go_on_ = true;
    changed_.SignalAll();
  }
  static std::shared_ptr<const Submission> Job() {
    return *MakeSubmission(SmallRequest(0, 0, 0), CoordinatorOptions());
  }
  static Event RunJob(int64_t call) {
    return event::RunJob{call, "anonymous", Job(), absl::InfiniteFuture()};
  }
  // The coordinator itself makes this plan, which blocks its thread.
  std::shared_ptr<TestSink> RunJobElsewhere() {
    auto sink = std::make_shared<TestSink>();
    runner_ = std::thread([this, sink] {
      const int64_t call = loop_->NewNumber();
      EXPECT_TRUE(loop_->PostCall(call, sink, RunJob(call)).ok());
    });
    return sink;
  }
  static Event PlanJob(int64_t call) { return event::PlanJob{call, "anonymous", Job()}; }
  static Event GetServerInfo(int64_t call) { return event::GetServerInfo{call}; }
  absl::Status PostBeat() {
    event::WorkerReported said;
    said.connection = link_;
    said.event.set_term(absl::ToUnixMicros(absl::FromUnixSeconds(1000000)));
    said.event.mutable_beat();
    return loop_->Post(said);
  }
  absl::Status PostInfo() {
    const int64_t call = loop_->NewNumber();
    return loop_->PostCall(call, std::make_shared<Counted>(this), event::GetServerInfo{call});
  }

  std::atomic<int> answers_{0}, answers_before_beat_{-1}, seconds_{0};
  std::atomic<bool> closed_{false};
  int64_t link_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool planning_ GUARDED_BY(mutex_) = false;
  bool go_on_ GUARDED_BY(mutex_) = false;
  std::thread runner_;
  std::unique_ptr<CoordinatorLoop> loop_;  // The last member: its threads use the others.
};

TEST_F(BusyLoopTest, ABeatOvertakesWhatClientsAskAndCountsAsOfWhenItCame) {
  Start(1000);
  const auto job = RunJobElsewhere();
  ASSERT_TRUE(AwaitPlanning());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(PostInfo().ok());
  seconds_ = 2;
  EXPECT_TRUE(PostBeat().ok());
  seconds_ = 4;  // After the lease since the registration, but not since the beat.
  GoOn();
  EXPECT_EQ(job->Wait().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(Ask(GetServerInfo)->Wait().ok());
  EXPECT_EQ(answers_, 100);
  EXPECT_EQ(answers_before_beat_, 0);
  EXPECT_FALSE(closed_);
}

TEST_F(BusyLoopTest, AFullMailboxRefusesBeginningsAndTakesEnds) {
  Start(4);
  const auto job = RunJobElsewhere();
  ASSERT_TRUE(AwaitPlanning());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(PostInfo().ok());
  const absl::Status refused = PostInfo();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).reason, "QUEUE_FULL");
  EXPECT_EQ(DetailOf(refused).retry_after, CoordinatorOptions().retry_after);
  EXPECT_TRUE(loop_->Post(event::CallGone{12345}).ok());
  // Workers have a separate mailbox.
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(PostBeat().ok());
  EXPECT_EQ(DetailOf(PostBeat()).reason, "QUEUE_FULL");
  EXPECT_TRUE(loop_->Post(event::WorkerGone{link_}).ok());
  EXPECT_TRUE(loop_->Post(event::Planned{1, absl::UnimplementedError("")}).ok());
}

TEST_F(BusyLoopTest, StopEndsEveryOpenCallOnce) {
  Start(1000);
  const std::vector<std::shared_ptr<TestSink>> plans = {Ask(PlanJob), Ask(PlanJob)};
  ASSERT_TRUE(AwaitPlanning());
  EXPECT_TRUE(Ask(GetServerInfo)->Wait().ok());  // The coordinator loop has taken both calls.
  for (const auto& plan : plans) EXPECT_EQ(plan->ends, 0);
  auto stopped = std::make_shared<TestSink>();
  std::thread stop([this, stopped] {
    loop_->Stop();
    stopped->Finish(absl::OkStatus());
  });
  for (const auto& plan : plans) EXPECT_EQ(DetailOf(plan->Wait()).reason, "DRAINING");
  EXPECT_TRUE(stopped->Wait().ok()) << "while the planner plans";
  GoOn();
  stop.join();
  for (const auto& plan : plans) EXPECT_EQ(plan->ends, 1);
  EXPECT_TRUE(closed_) << "the worker's connection";
}

TEST_F(BusyLoopTest, ADryRunTakesNoTimeOfTheBrain) {
  Start(1000);
  const auto plan = Ask(PlanJob);
  ASSERT_TRUE(AwaitPlanning());
  EXPECT_TRUE(Ask(GetServerInfo)->Wait().ok()) << "while the planner plans";
  GoOn();
  EXPECT_EQ(plan->Wait().code(), absl::StatusCode::kUnimplemented);
}

TEST(PlannerPoolTest, PlansAllAndForgetsAtTheEnd) {
  std::atomic<int> made{0};
  auto done = std::make_shared<TestSink>();
  PlannerPool pool(2, [&](const PlanRequest&) -> PlanResult {
    ++made;
    return absl::UnimplementedError("");
  });
  std::atomic<int> answered{0};
  for (int i = 0; i < 20; ++i) {
    pool.Post({false, i}, {}, [&](PlanResult) {
      if (++answered == 20) done->Finish(absl::OkStatus());
    });
  }
  EXPECT_TRUE(done->Wait().ok());
  EXPECT_EQ(made, 20);
  pool.Stop();
  pool.Post({false, 20}, {}, [](PlanResult) { FAIL(); });
}

TEST(PlannerPoolTest, PlansJobsFirstAndNothingThatNobodyWaitsFor) {
  auto begun = std::make_shared<TestSink>(), all_posted = std::make_shared<TestSink>(),
       done = std::make_shared<TestSink>();
  PlannerPool pool(1, [](const PlanRequest&) -> PlanResult { return nullptr; });
  pool.Post({false, 1}, {}, [&](PlanResult) {
    begun->Finish(absl::OkStatus());
    EXPECT_TRUE(all_posted->Wait().ok());
  });
  EXPECT_TRUE(begun->Wait().ok());
  std::vector<int> order;
  const auto note = [&order](int plan) {
    return [&order, plan](PlanResult) { order.push_back(plan); };
  };
  pool.Post({true, 2}, {}, note(2));
  pool.Post({true, 3}, {}, note(3));
  pool.Post({false, 4}, {}, note(4));
  pool.Post({false, 5}, {}, note(5));
  pool.Post({true, 6}, {}, [&](PlanResult) { done->Finish(absl::OkStatus()); });
  pool.Forget(2);
  pool.Forget(4);
  pool.Forget(1);  // The plan is being made.
  all_posted->Finish(absl::OkStatus());
  EXPECT_TRUE(done->Wait().ok());
  EXPECT_EQ(order, (std::vector<int>{5, 3}));
}

TEST(PlannerPoolTest, AQuickPlanDoesNotWaitForOneThatIsMade) {
  auto begun = std::make_shared<TestSink>(), go_on = std::make_shared<TestSink>(),
       quick = std::make_shared<TestSink>(), slow = std::make_shared<TestSink>();
  PlannerPool pool(1, [](const PlanRequest&) -> PlanResult { return nullptr; });
  pool.Post({false, 1}, {}, [&](PlanResult) {
    begun->Finish(absl::OkStatus());
    EXPECT_TRUE(go_on->Wait().ok());
  });
  EXPECT_TRUE(begun->Wait().ok());
  pool.Post({false, 2}, {}, [&](PlanResult) { slow->Finish(absl::OkStatus()); });
  pool.Post({true, 3, /*quick=*/true}, {}, [&](PlanResult) { quick->Finish(absl::OkStatus()); });
  EXPECT_TRUE(quick->Wait().ok());
  EXPECT_EQ(slow->ends, 0);
  go_on->Finish(absl::OkStatus());
  EXPECT_TRUE(slow->Wait().ok());
}

}  // namespace
}  // namespace annulus
