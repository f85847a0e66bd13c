#include "base/mutex.h"

#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

class Counter {
 public:
  void Add() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    ++value_;
    changed_.SignalAll();
  }
  // False if the value is still below `value` at the deadline.
  template <typename Deadline>
  bool AwaitAtLeast(int value, Deadline deadline) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (value_ < value) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return value_ >= value;
    }
    return true;
  }
  bool IsHeldByAnother() {
    if (!mutex_.TryLock()) return true;
    mutex_.Unlock();
    return false;
  }
  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  int value_ GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, EveryIncrementOfManyThreadsCounts) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counter.Add();
    });
  }
  EXPECT_TRUE(counter.AwaitAtLeast(4000, absl::Now() + absl::Seconds(30)));
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(counter.AwaitAtLeast(4001, absl::Now()));
}

TEST(MutexTest, TryLockFailsWhileAnotherThreadHoldsIt) {
  Counter counter;
  bool held = false;
  {
    MutexLock lock(&counter.mutex());
    std::thread([&] { held = counter.IsHeldByAnother(); }).join();
  }
  EXPECT_TRUE(held);
  EXPECT_FALSE(counter.IsHeldByAnother());
}

TEST(CondVarTest, WakesAWaiterOfEitherClock) {
  Counter counter;
  bool by_wall_clock = false, by_steady_clock = false;
  std::thread first(
      [&] { by_wall_clock = counter.AwaitAtLeast(1, absl::Now() + absl::Seconds(30)); });
  std::thread second([&] {
    by_steady_clock =
        counter.AwaitAtLeast(1, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  });
  counter.Add();
  first.join();
  second.join();
  EXPECT_TRUE(by_wall_clock);
  EXPECT_TRUE(by_steady_clock);
}

TEST(CondVarTest, GivesUpAtTheDeadline) {
  Counter counter;
  EXPECT_FALSE(counter.AwaitAtLeast(1, absl::Now() + absl::Milliseconds(5)));
  EXPECT_FALSE(counter.AwaitAtLeast(1, absl::InfinitePast()));
  counter.Add();
  EXPECT_TRUE(counter.AwaitAtLeast(1, absl::InfiniteFuture()));
}

TEST(CondVarTest, WaitForEndsAfterItsTimeout) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(&mutex);
  const absl::Time begin = absl::Now();
  while (condition.WaitFor(&mutex, absl::Milliseconds(5))) {
  }
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(4));
}

}  // namespace
}  // namespace annulus
