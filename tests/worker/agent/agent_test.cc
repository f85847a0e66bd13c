// The thread around AgentState.
#include "worker/agent/agent.h"

#include <gtest/gtest.h>

#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace annulus {
namespace {

// Records the actions. Thread-safe.
class Performer {
 public:
  void Perform(const AgentAction& action) {
    MutexLock lock(&mutex_);
    actions_.push_back(action);
    changed_.SignalAll();
  }
  template <typename Action>
  bool Await(size_t count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (true) {
      size_t found = 0;
      for (const AgentAction& action : actions_) found += std::holds_alternative<Action>(action);
      if (found >= count) return true;
      if (!changed_.WaitUntil(&mutex_, deadline)) return false;
    }
  }
  size_t Count() {
    MutexLock lock(&mutex_);
    return actions_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  AgentActions actions_ GUARDED_BY(mutex_);
};

Agent::Options MakeOptions(Performer* performer) {
  Agent::Options options;
  options.state.self = [] { return control::v1::Register(); };
  options.state.new_identity = [] { return Identity{"incarnation", "key"}; };
  options.state.link.random = [] { return 0.0; };
  options.now = absl::Now;
  options.perform = [performer](const AgentAction& action) { performer->Perform(action); };
  options.housekeeping = [] {};
  options.overflow = [] { ADD_FAILURE() << "the mailbox is full"; };
  return options;
}

control::v1::WorkerCommand Welcome() {
  control::v1::WorkerCommand command;
  command.set_term(1);
  command.mutable_welcome()->mutable_lease()->set_seconds(1000);
  command.mutable_welcome()->mutable_beat_interval()->set_nanos(1000000);
  return command;
}

TEST(AgentTest, EventsOfManyThreadsAreHandledOneByOne) {
  Performer performer;
  Agent agent(MakeOptions(&performer));
  agent.Start();
  ASSERT_TRUE(performer.Await<Connect>(1));
  agent.Post(CommandArrived{1, Welcome()});
  std::thread commands([&] {
    for (int i = 1; i <= 200; ++i) {
      control::v1::WorkerCommand command;
      command.set_term(1);
      command.set_id(i);
      command.mutable_reserve()->mutable_shard()->set_job_id(absl::StrCat(i));
      agent.Post(CommandArrived{1, command});
    }
  });
  std::vector<std::thread> reporters;
  for (int t = 0; t < 3; ++t) {
    reporters.emplace_back([&] {
      for (int i = 1; i <= 200; ++i) agent.Post(ShardFreed{{absl::StrCat("nobody-", i), 0, 0}});
    });
  }
  commands.join();
  for (std::thread& reporter : reporters) reporter.join();
  EXPECT_TRUE(performer.Await<OpenShard>(200));
  EXPECT_TRUE(performer.Await<Send>(20));  // Beats come only by the timer.
}

TEST(AgentTest, HousekeepingGoesOn) {
  Performer performer;
  Agent::Options options = MakeOptions(&performer);
  options.housekeeping_interval = absl::Milliseconds(1);
  options.housekeeping = [&] { performer.Perform(Exit{}); };
  Agent agent(options);
  agent.Start();
  EXPECT_TRUE(performer.Await<Exit>(10));
}

TEST(AgentTest, NothingIsDoneAfterStop) {
  Performer performer;
  Agent agent(MakeOptions(&performer));
  agent.Start();
  ASSERT_TRUE(performer.Await<Connect>(1));
  agent.Stop();
  const size_t done = performer.Count();
  agent.Post(Terminated{});
  agent.Post(ShardFreed{{"nobody", 0, 0}});
  agent.Stop();
  EXPECT_EQ(performer.Count(), done);
}

}  // namespace
}  // namespace annulus
