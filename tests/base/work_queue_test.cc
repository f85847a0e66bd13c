#include "base/work_queue.h"

#include <atomic>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// Keeps a queue's thread until it is opened.
class Door {
 public:
  void Pass() {
    MutexLock lock(&mutex_);
    inside_ = true;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mutex_);
  }
  void AwaitSomebody() {
    MutexLock lock(&mutex_);
    while (!inside_) changed_.Wait(&mutex_);
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool inside_ GUARDED_BY(mutex_) = false, open_ GUARDED_BY(mutex_) = false;
};

TEST(WorkQueue, OneThreadGoesInOrderAndEndsWithWhatIsQueued) {
  std::vector<int> done;
  Door door;
  {
    WorkQueue queue(/*limit=*/2);
    EXPECT_TRUE(queue.Post([&] { door.Pass(); }));
    door.AwaitSomebody();
    EXPECT_TRUE(queue.Post([&] { done.push_back(1); }));
    EXPECT_TRUE(queue.Post([&] { done.push_back(2); }));
    EXPECT_FALSE(queue.Post([&] { done.push_back(-1); })) << "two wait";
    queue.PostAlways([&] { done.push_back(3); });
    queue.PostFront([&] { done.push_back(0); });
    door.Open();
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3}));
}

TEST(WorkQueue, SeveralThreadsDoEachPieceOnce) {
  std::atomic<int> done{0};
  {
    WorkQueue queue(/*limit=*/1000, /*threads=*/3);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(queue.Post([&] { ++done; }));
  }
  EXPECT_EQ(done, 1000);
}

}  // namespace
}  // namespace annulus
