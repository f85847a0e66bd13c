#include "server/gateway/idle_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace annulus {
namespace {

// Records the calls that left, in order.
struct Leavers {
  IdleCalls::Leave Leave(char name) {
    return [this, name](IdleCalls::Why why) {
      left += name;
      if (why == IdleCalls::Why::kClosed) left += '!';
    };
  }
  std::string left;
};

TEST(IdleCallsTest, TheLongestAtRestMakesRoom) {
  Leavers leavers;
  IdleCalls calls(2);
  const auto a = calls.Add(leavers.Leave('a')), b = calls.Add(leavers.Leave('b'));
  EXPECT_EQ(leavers.left, "");
  const auto c = calls.Add(leavers.Leave('c'));
  EXPECT_EQ(leavers.left, "a");
  const auto d = calls.Add(leavers.Leave('d'));
  EXPECT_EQ(leavers.left, "ab");
}

TEST(IdleCallsTest, WhoHasGoneBackToWorkIsLeftAlone) {
  Leavers leavers;
  IdleCalls calls(1);
  auto a = calls.Add(leavers.Leave('a'));
  a.reset();
  const auto b = calls.Add(leavers.Leave('b'));
  EXPECT_EQ(leavers.left, "");
  calls.Close();
  EXPECT_EQ(leavers.left, "b!");
}

TEST(IdleCallsTest, NobodyRestsInTheEnd) {
  Leavers leavers;
  IdleCalls calls(8);
  const auto a = calls.Add(leavers.Leave('a')), b = calls.Add(leavers.Leave('b'));
  calls.Close();
  EXPECT_EQ(leavers.left, "a!b!");
  EXPECT_EQ(calls.Add(leavers.Leave('c')), nullptr);
  calls.Close();
  EXPECT_EQ(leavers.left, "a!b!");
}

// Each call is asked to leave at most once; in the end none is left.
TEST(IdleCallsTest, CallsComeAndGoOnManyThreads) {
  constexpr int kThreads = 4, kRounds = 2000;
  std::atomic<int> told{0}, twice{0};
  IdleCalls calls(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        auto once = std::make_shared<std::atomic<bool>>(false);
        const auto rest = calls.Add([&told, &twice, once](IdleCalls::Why) {
          ++told;
          if (once->exchange(true)) ++twice;
        });
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice, 0);

  const int before = told;
  calls.Close();
  EXPECT_EQ(told, before) << "nobody is left";
}

}  // namespace
}  // namespace annulus
