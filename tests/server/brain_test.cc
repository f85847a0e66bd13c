#include "server/services/brain.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "attention/error.h"
#include "attention/schedule.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// Without gRPC, so that ThreadSanitizer sees all of it.
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

Brain::Options TestOptions() {
  Brain::Options options;
  options.plan = [](const PlanRequest&) -> PlanResult {
    return absl::UnimplementedError("not here");
  };
  options.random = [n = uint64_t{0}]() mutable { return ++n; };
  return options;
}

TEST(BrainTest, AnswersFromManyThreadsAndEndsEveryCallOnce) {
  Brain brain(TestOptions());
  std::vector<std::shared_ptr<TestSink>> sinks(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < sinks.size(); i += 4) {
        sinks[i] = std::make_shared<TestSink>();
        const int64_t call = brain.NewNumber();
        const bool unknown = i % 2 == 0;
        if (unknown) {
          EXPECT_TRUE(brain.PostCall(call, sinks[i], event::GetJob{call, "anonymous", "job-x"}));
        } else {
          EXPECT_TRUE(brain.PostCall(call, sinks[i], event::GetServerInfo{call}));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(DetailOf(sinks[i]->Wait()).reason, i % 2 == 0 ? "JOB_NOT_FOUND" : "");
  }
  EXPECT_TRUE(brain.FreshWithin(absl::Seconds(10)));
  brain.Stop();
  for (const auto& sink : sinks) EXPECT_EQ(sink->ends, 1);
}

TEST(BrainTest, StopEndsOpenCallsAndRefusesNewOnes) {
  Brain::Options options = TestOptions();
  options.coordinator.max_queued_jobs = 4;
  Brain brain(options);
  auto sink = std::make_shared<TestSink>();
  brain.Stop();
  const int64_t call = brain.NewNumber();
  EXPECT_FALSE(brain.PostCall(call, sink, event::GetServerInfo{call}));
  EXPECT_EQ(sink->ends, 0) << "a refused sink is not used";
  brain.Stop();
}

TEST(BrainTest, DrainOfAnIdleCoordinatorStops) {
  Brain::Options options = TestOptions();
  auto stopped = std::make_shared<TestSink>();
  options.on_stopped = [stopped] { stopped->Finish(absl::OkStatus()); };
  Brain brain(options);
  EXPECT_TRUE(brain.Post(event::Drain{}));
  EXPECT_TRUE(stopped->Wait().ok());
}

TEST(BrainTest, TimersRunWithoutMail) {
  Brain::Options options = TestOptions();
  options.coordinator.lease = absl::Milliseconds(60);
  options.coordinator.beat_interval = absl::Milliseconds(20);
  auto not_ready = std::make_shared<TestSink>();
  options.on_ready = [not_ready](bool ready) {
    if (!ready) not_ready->Finish(absl::OkStatus());
  };
  struct Link final : LinkSink {
    void Send(control::v1::WorkerCommand) override {}
    void Close(const absl::Status&) override {}
  };
  Brain brain(options);
  event::WorkerSaid said;
  said.connection = brain.NewNumber();
  control::v1::Register& info = *said.event.mutable_register_();
  info.set_slot("w0");
  info.set_incarnation("i");
  info.set_ticket_key(std::string(32, 'k'));
  info.set_data_endpoint("w0:1");
  info.set_flops_per_second(1);
  info.set_link_bytes_per_second(1);
  info.set_schedule_version(kScheduleVersion);
  info.set_protocol_version(control::v1::PROTOCOL_VERSION_CURRENT);
  EXPECT_TRUE(brain.PostLink(said.connection, std::make_shared<Link>(), said));
  // It never beats: its lease runs out by the brain's own clock.
  EXPECT_TRUE(not_ready->Wait().ok());
}

TEST(PlannerPoolTest, PlansInOrderBoundsItsQueueAndForgetsAtTheEnd) {
  std::atomic<int> made{0};
  auto done = std::make_shared<TestSink>();
  PlannerPool pool(2, 100, [&](const PlanRequest&) -> PlanResult {
    ++made;
    return absl::UnimplementedError("");
  });
  std::atomic<int> answered{0};
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(pool.Post({}, [&](PlanResult) {
      if (++answered == 20) done->Finish(absl::OkStatus());
    }));
  }
  EXPECT_TRUE(done->Wait().ok());
  EXPECT_EQ(made, 20);
  pool.Stop();
  EXPECT_FALSE(pool.Post({}, [](PlanResult) { FAIL(); }));
}

}  // namespace
}  // namespace annulus
