#include "worker/device/load_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace annulus {
namespace {

constexpr absl::Duration kNow = absl::ZeroDuration(), kLong = absl::Minutes(1);

TEST(LoadGate, NothingIsLoadedWhileMessagesAreUnderWay) {
  LoadGate gate;
  gate.BeginMessages();
  gate.BeginMessages();
  EXPECT_FALSE(gate.BeginLoad(kNow));
  gate.EndMessages();
  EXPECT_FALSE(gate.BeginLoad(absl::Milliseconds(2)));
  gate.EndMessages();
  EXPECT_TRUE(gate.BeginLoad(kNow));
  EXPECT_TRUE(gate.BeginLoad(kNow)) << "loads do not mind each other";
  gate.EndLoad();
  gate.EndLoad();
}

// Gives a thread that has begun the chance to proceed wrongly.
void LetOthersRun(const std::atomic<bool>& began) {
  while (!began) std::this_thread::yield();
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
}

TEST(LoadGate, ALoadWaitsForTheEndOfMessages) {
  LoadGate gate;
  gate.BeginMessages();
  std::atomic<bool> began{false}, ended{false};
  std::thread load([&] {
    began = true;
    EXPECT_TRUE(gate.BeginLoad(kLong));
    EXPECT_TRUE(ended);
    gate.EndLoad();
  });
  LetOthersRun(began);
  ended = true;
  gate.EndMessages();
  load.join();
}

TEST(LoadGate, MessagesWaitForTheEndOfALoad) {
  LoadGate gate;
  ASSERT_TRUE(gate.BeginLoad(kNow));
  std::atomic<bool> began{false}, ended{false};
  std::thread messages([&] {
    began = true;
    gate.BeginMessages();
    EXPECT_TRUE(ended);
    gate.EndMessages();
  });
  LetOthersRun(began);
  ended = true;
  gate.EndLoad();
  messages.join();
}

// Threads of both kinds run as fast as they can. Two different kinds are never active at the same
// time.
TEST(LoadGate, NeverBoth) {
  LoadGate gate;
  std::atomic<int> messages{0}, loads{0}, loaded{0};
  std::atomic<bool> both{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        gate.BeginMessages();
        ++messages;
        if (loads > 0) both = true;
        --messages;
        gate.EndMessages();
      }
    });
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        if (!gate.BeginLoad(absl::Microseconds(50))) continue;
        ++loads;
        ++loaded;
        if (messages > 0) both = true;
        --loads;
        gate.EndLoad();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(both);
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace annulus
