#include "base/serial_executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace annulus {
namespace {

// Events are numbers. Only the thread with the turn uses `handled` and `ticks`, so ThreadSanitizer
// detects two simultaneous turns.
class SerialExecutorTest : public testing::Test {
 protected:
  void Start(int most_in_a_row = 64) {
    SerialExecutor::Options options;
    options.work = [this] { return Work(); };
    options.tick = [this] {
      ++ticks_;
      Note([](SerialExecutorTest* test) { ++test->seen_ticks_; });
      wake_ = absl::InfiniteFuture();
    };
    options.wake = [this] { return wake_; };
    options.now = absl::Now;
    options.most_in_a_row = most_in_a_row;
    options.longest_sleep = longest_sleep_;
    if (after) options.after = after;
    turns_ = std::make_unique<SerialExecutor>(std::move(options));
  }
  void Post(int event) {
    {
      MutexLock lock(&mutex_);
      waiting_.push_back(event);
    }
    turns_->Take();
  }
  bool Work() {
    int event = 0;
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) return false;
      event = waiting_.front();
      waiting_.pop_front();
    }
    handled_.push_back(event);
    threads_.push_back(std::this_thread::get_id());
    if (on_event) on_event(event);
    Note([](SerialExecutorTest* test) { ++test->seen_; });
    return true;
  }
  void Note(void (*change)(SerialExecutorTest*)) {
    MutexLock lock(&mutex_);
    change(this);
    changed_.SignalAll();
  }
  bool AwaitEvents(int count) { return Await(&SerialExecutorTest::seen_, count); }
  bool AwaitTicks(int count) { return Await(&SerialExecutorTest::seen_ticks_, count); }
  bool Await(int SerialExecutorTest::*counter, int count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    MutexLock lock(&mutex_);
    while (this->*counter < count) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }

  std::function<void(int)> on_event;
  std::function<void()> after;
  std::vector<int> handled_;
  std::vector<std::thread::id> threads_;
  int ticks_ = 0;
  absl::Time wake_ = absl::InfiniteFuture();
  absl::Duration longest_sleep_ = absl::Hours(1);
  Mutex mutex_;
  CondVar changed_;
  std::deque<int> waiting_ GUARDED_BY(mutex_);
  int seen_ = 0, seen_ticks_ = 0;          // Guarded by mutex_.
  std::unique_ptr<SerialExecutor> turns_;  // The last member: its thread uses the others.
};

TEST_F(SerialExecutorTest, WhoBringsAnEventHandlesIt) {
  Start();
  turns_->Start();
  Post(7);
  EXPECT_EQ(handled_, std::vector<int>({7}));
  EXPECT_EQ(threads_[0], std::this_thread::get_id());
}

TEST_F(SerialExecutorTest, WhatComesAfterATurnHoldsUpNoEvents) {
  std::vector<size_t> handled;  // The number of events at the end of each turn.
  after = [&] {
    handled.push_back(handled_.size());
    if (handled_.size() == 1) Post(2);
  };
  Start();
  turns_->Start();
  Post(1);
  EXPECT_EQ(handled_, std::vector<int>({1, 2}));
  EXPECT_EQ(handled, std::vector<size_t>({0, 1, 2})) << "the second was handled inside the first's";
  turns_->Stop();
}

TEST_F(SerialExecutorTest, NothingIsHandledBeforeTheStart) {
  Start();
  Post(1);
  EXPECT_TRUE(handled_.empty());
  turns_->Start();
  EXPECT_EQ(handled_, std::vector<int>({1}));
}

TEST_F(SerialExecutorTest, EventsOfManyThreadsAreHandledOnceAndOneByOne) {
  Start();
  turns_->Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 500; ++i) Post(1000 * t + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(AwaitEvents(2000));
  turns_->Stop();
  std::vector<int> last(4, -1);
  for (const int event : handled_) {
    EXPECT_EQ(event % 1000, last[event / 1000] + 1) << "each thread's in order";
    last[event / 1000] = event % 1000;
  }
}

TEST_F(SerialExecutorTest, AnEventOfAnEventIsHandledAfterIt) {
  on_event = [this](int event) {
    if (event < 5) Post(event + 1);
    EXPECT_EQ(handled_.back(), event) << "not inside";
  };
  Start();
  turns_->Start();
  Post(1);
  EXPECT_EQ(handled_, std::vector<int>({1, 2, 3, 4, 5}));
}

TEST_F(SerialExecutorTest, ATickComesWhenItIsDue) {
  Start();
  turns_->Start();
  on_event = [this](int) { wake_ = absl::Now() + absl::Milliseconds(20); };
  Post(1);
  EXPECT_TRUE(AwaitTicks(1));
  turns_->Stop();
  EXPECT_GE(ticks_, 1);
}

TEST_F(SerialExecutorTest, AThreadThatWorkedLongForOthersIsLetGo) {
  Start(/*most_in_a_row=*/3);
  turns_->Start();
  on_event = [this](int event) {
    if (event < 20) Post(event + 1);
  };
  Post(1);
  ASSERT_TRUE(AwaitEvents(20));
  turns_->Stop();
  EXPECT_EQ(threads_[2], std::this_thread::get_id());
  EXPECT_NE(threads_[3], std::this_thread::get_id());
  EXPECT_EQ(threads_[19], threads_[3]);
}

TEST_F(SerialExecutorTest, AnAskedEventIsHandledElsewhere) {
  Start();
  turns_->Start();
  {
    MutexLock lock(&mutex_);
    waiting_.push_back(7);
  }
  turns_->Ask();
  ASSERT_TRUE(AwaitEvents(1));
  turns_->Stop();
  ASSERT_EQ(threads_.size(), 1u);
  EXPECT_NE(threads_[0], std::this_thread::get_id());
}

TEST_F(SerialExecutorTest, AnAskedEventEndsALongSleepAndWaitsForTheEndOfANap) {
  Start();
  turns_->Start();
  for (int i = 0; i < 8; ++i) {
    const bool nap = i % 2 == 0;
    if (nap) Post(0);
    if (!nap) {
      // Long enough for the timer thread to find nothing to do.
      MutexLock lock(&mutex_);
      changed_.WaitUntil(&mutex_, absl::Now() + 6 * SerialExecutor::kNap);
    }
    {
      MutexLock lock(&mutex_);
      waiting_.push_back(i);
    }
    turns_->Ask();
    ASSERT_TRUE(AwaitEvents(i + 1 + (i + 2) / 2)) << i;
  }
  turns_->Stop();
}

TEST_F(SerialExecutorTest, TicksComeHoweverMuchWaits) {
  Start(/*most_in_a_row=*/3);
  std::atomic<bool> more{true};
  on_event = [&](int event) {
    wake_ = absl::Now();
    if (more) Post(event);  // Each event posts one more.
  };
  turns_->Start();
  Post(1);
  EXPECT_TRUE(AwaitTicks(3));
  more = false;
  turns_->Stop();
}

TEST_F(SerialExecutorTest, WhatWaitsComesBeforeATick) {
  Start();
  on_event = [&](int) { EXPECT_EQ(ticks_, 0); };
  wake_ = absl::InfinitePast();
  for (int i = 0; i < 10; ++i) Post(i);  // No event is handled yet.
  turns_->Start();
  ASSERT_TRUE(AwaitTicks(1));
  turns_->Stop();
  EXPECT_EQ(handled_.size(), 10u);
}

TEST_F(SerialExecutorTest, StopWaitsForTheTurnAndEndsAll) {
  Mutex gate;
  std::atomic<bool> inside{false}, stopped{false};
  on_event = [&](int) {
    inside = true;
    MutexLock lock(&gate);
    EXPECT_FALSE(stopped);
  };
  Start();
  turns_->Start();
  gate.Lock();
  std::thread poster([this] { Post(1); });
  while (!inside) std::this_thread::yield();
  std::thread stopper([&] {
    turns_->Stop();
    stopped = true;
  });
  gate.Unlock();
  poster.join();
  stopper.join();
  Post(2);
  EXPECT_EQ(handled_, std::vector<int>({1}));
}

}  // namespace
}  // namespace annulus
