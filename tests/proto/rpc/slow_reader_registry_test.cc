#include "proto/rpc/slow_reader_registry.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(SlowReaderRegistryTest, TheOldestGiveWayWhereThereAreTooMany) {
  SlowReaderRegistry answers({/*calls=*/3, /*bytes=*/1000});
  std::vector<int> cancelled;
  const auto add = [&](int name) {
    return answers.Add(0, [&cancelled, name] { cancelled.push_back(name); });
  };
  add(0);
  const uint64_t read = add(1);
  add(2);
  EXPECT_TRUE(cancelled.empty());
  answers.Remove(read);
  add(3);
  EXPECT_TRUE(cancelled.empty()) << "one has been read";
  add(4);
  EXPECT_EQ(cancelled, (std::vector<int>{0}));
  EXPECT_EQ(answers.calls(), 3u);
}

TEST(SlowReaderRegistryTest, AndWhereTheyAreTooLarge) {
  SlowReaderRegistry answers({/*calls=*/100, /*bytes=*/1000});
  int cancelled = 0;
  const auto cancel = [&] { ++cancelled; };
  const uint64_t first = answers.Add(400, cancel);
  answers.Add(400, cancel);
  answers.Add(300, cancel);
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(answers.bytes(), 700u);
  answers.Remove(first);
  EXPECT_EQ(answers.bytes(), 700u) << "it was gone";
  const uint64_t huge = answers.Add(5000, cancel);
  EXPECT_EQ(cancelled, 3);
  EXPECT_EQ(answers.calls(), 1u) << "the last one stays";
  answers.Remove(huge);
  EXPECT_EQ(answers.bytes(), 0u);
  EXPECT_EQ(answers.calls(), 0u);
}

TEST(SlowReaderRegistryTest, OneThatGrowsHasWaitedAsLongAsBefore) {
  SlowReaderRegistry answers({/*calls=*/100, /*bytes=*/1000});
  std::vector<int> cancelled;
  const auto add = [&](int name, size_t bytes) {
    return answers.Add(bytes, [&cancelled, name] { cancelled.push_back(name); });
  };
  const uint64_t old = add(0, 100), young = add(1, 100);
  answers.Resize(old, 300);
  EXPECT_EQ(answers.bytes(), 400u);
  answers.Resize(old, 50);
  EXPECT_EQ(answers.bytes(), 150u);
  answers.Resize(young, 951);
  EXPECT_EQ(cancelled, (std::vector<int>{0}));
  EXPECT_EQ(answers.bytes(), 951u);
  answers.Resize(old, 500);
  EXPECT_EQ(answers.bytes(), 951u) << "it was gone";
  answers.Resize(young, 5000);
  EXPECT_EQ(cancelled.size(), 1u) << "the last one stays";
}

TEST(SlowReaderRegistryTest, ThreadsAddAndRemove) {
  SlowReaderRegistry answers({/*calls=*/5, /*bytes=*/1000});
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const uint64_t one = answers.Add(i % 300, [&] { ++cancelled; });
        const uint64_t other = answers.Add(i % 7, [&] { ++cancelled; });
        answers.Resize(one, i % 500);
        answers.Remove(one);
        answers.Remove(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers.calls(), 0u);
  EXPECT_EQ(answers.bytes(), 0u);
}

}  // namespace
}  // namespace annulus
