#include "client/cli/verify/all_threads.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/cpu_list.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(AllThreadsTest, EachPieceIsDoneOnce) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    ForEachOnAllThreads(count, [&](int64_t n) { ++calls[n]; });
    for (const std::atomic<int>& each : calls) EXPECT_EQ(each, 1);
  }
}

TEST(AllThreadsTest, OneCpuTakesOneThread) {
  std::thread([] {
    ASSERT_TRUE(KeepToCpus({AllowedCpus().front()}).ok());
    const std::thread::id here = std::this_thread::get_id();
    ForEachOnAllThreads(100, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), here); });
  }).join();
}

// Each thread waits for the other, at most 10 s.
TEST(AllThreadsTest, TwoCpusTakeTwoThreads) {
  if (AllowedCpuCount() < 2) GTEST_SKIP() << "one CPU";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::atomic<int> here{0}, met{0};
  ForEachOnAllThreads(2, [&](int64_t) {
    ++here;
    while (here < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (here == 2) ++met;
  });
  EXPECT_EQ(met, 2);
}

}  // namespace
}  // namespace annulus
