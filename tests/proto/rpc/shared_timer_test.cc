#include "proto/rpc/shared_timer.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/mutex.h"

namespace annulus {
namespace {

// The numbers of the timers that have passed, in the order of their ends.
class Log {
 public:
  void Add(int number) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    numbers_ = numbers_ * 10 + number;
    changed_.SignalAll();
  }
  int Await(int numbers) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (numbers_ < numbers) {
      if (!changed_.WaitFor(&mutex_, absl::Seconds(30))) break;
    }
    return numbers_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int numbers_ GUARDED_BY(mutex_) = 0;
};

TEST(SharedTimerTest, EachPassesInItsTimeAndOnlyThoseThatHaveBegun) {
  Log log;
  SharedTimer never(absl::ZeroDuration(), [&] { log.Add(9); });
  SharedTimer late(absl::Seconds(2), [&] { log.Add(2); });
  SharedTimer soon(absl::Milliseconds(10), [&] { log.Add(1); });
  SharedTimer far(absl::InfiniteDuration(), [&] { log.Add(8); });
  far.Begin();
  late.Begin();
  soon.Begin();
  soon.Begin();
  EXPECT_EQ(log.Await(12), 12);
}

TEST(SharedTimerTest, OneThatIsCalledOffOrGoneDoesNotPass) {
  Log log;
  SharedTimer again(absl::Seconds(1), [&] { log.Add(1); });
  auto gone = std::make_unique<SharedTimer>(absl::Seconds(1), [&] { log.Add(9); });
  auto off = std::make_unique<SharedTimer>(absl::Seconds(1), [&] { log.Add(8); });
  again.Begin();
  gone->Begin();
  off->Begin();
  gone.reset();
  off->CallOff();
  again.CallOff();
  again.Begin();
  EXPECT_EQ(log.Await(1), 1);
}

}  // namespace
}  // namespace annulus
