#include "base/work_queue.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"
#include "tests/base/gate.h"

namespace annulus {
namespace {

TEST(WorkQueue, OneThreadGoesInOrderAndEndsWithWhatIsQueued) {
  std::vector<int> done;
  Gate gate;
  {
    WorkQueue queue(/*limit=*/2);
    EXPECT_TRUE(queue.Post([&] { gate.Pass(); }));
    ASSERT_TRUE(gate.AwaitOne());
    EXPECT_TRUE(queue.Post([&] { done.push_back(1); }));
    EXPECT_TRUE(queue.Post([&] { done.push_back(2); }));
    EXPECT_FALSE(queue.Post([&] { done.push_back(-1); })) << "two wait";
    queue.PostAlways([&] { done.push_back(3); });
    queue.PostFront([&] { done.push_back(0); });
    gate.Open();
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
