#include "client/reachability.h"

#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// Searches last until the test ends them; then their results arrive.
class ReachabilityTest : public testing::Test {
 protected:
  ~ReachabilityTest() override { Allow(1000); }

  void Allow(int searches) {
    MutexLock lock(&mutex_);
    allowed_ += searches;
    changed_.SignalAll();
  }
  std::function<void(bool)> Later() {
    return [this](bool found) {
      MutexLock lock(&mutex_);
      told_.push_back(found);
      changed_.SignalAll();
    };
  }
  std::vector<bool> AwaitTold(size_t count) {
    MutexLock lock(&mutex_);
    while (told_.size() < count) {
      if (!changed_.WaitFor(&mutex_, absl::Seconds(20))) break;
    }
    return told_;
  }
  int begun() {
    MutexLock lock(&mutex_);
    return begun_;
  }
  void Find(bool found) {
    MutexLock lock(&mutex_);
    found_ = found;
  }
  void Pass(absl::Duration time) {
    MutexLock lock(&mutex_);
    now_ += time;
  }
  absl::Time Now() {
    MutexLock lock(&mutex_);
    return now_;
  }
  bool Search() {
    MutexLock lock(&mutex_);
    ++begun_;
    changed_.SignalAll();
    while (allowed_ == 0) changed_.Wait(&mutex_);
    --allowed_;
    return found_;
  }

  Mutex mutex_;
  CondVar changed_;
  int allowed_ GUARDED_BY(mutex_) = 0, begun_ GUARDED_BY(mutex_) = 0;
  bool found_ GUARDED_BY(mutex_) = true;
  std::vector<bool> told_ GUARDED_BY(mutex_);
  absl::Time now_ GUARDED_BY(mutex_) = absl::UnixEpoch();
};

TEST_F(ReachabilityTest, TheFirstQuestionsShareOneSearch) {
  Reachability workers([this] { return Search(); }, absl::Seconds(30), [this] { return Now(); });
  EXPECT_EQ(workers.Ask(Later()), std::nullopt);
  EXPECT_EQ(workers.Ask(Later()), std::nullopt);
  Allow(1);
  EXPECT_EQ(AwaitTold(2), (std::vector<bool>{true, true}));
  EXPECT_EQ(workers.Ask(Later()), true);
  EXPECT_EQ(begun(), 1);
}

TEST_F(ReachabilityTest, AnOldAnswerServesWhileANewOneIsLookedFor) {
  Reachability workers([this] { return Search(); }, absl::Seconds(30), [this] { return Now(); });
  workers.Ask(Later());
  Allow(1);
  AwaitTold(1);
  Find(false);
  Pass(absl::Seconds(31));
  EXPECT_EQ(workers.Ask(Later()), true);
  EXPECT_EQ(workers.Ask(Later()), true);
  Allow(1);
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (workers.Ask(Later()) == true && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(workers.Ask(Later()), false);
  EXPECT_EQ(begun(), 2);
}

TEST_F(ReachabilityTest, AnAnswerThatDidNotHoldIsForgotten) {
  Reachability workers([this] { return Search(); }, absl::Seconds(30), [this] { return Now(); });
  workers.Ask(Later());
  Allow(1);
  AwaitTold(1);
  workers.Forget();
  Find(false);
  EXPECT_EQ(workers.Ask(Later()), std::nullopt);
  Allow(1);
  EXPECT_EQ(AwaitTold(2), (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace annulus
