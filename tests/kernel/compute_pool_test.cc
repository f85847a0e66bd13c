#include "worker/kernel/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace annulus {
namespace {

TEST(ComputePoolTest, EveryIndexIsDoneOnceByAThreadOfThePool) {
  for (const int threads : {1, 2, 3, 8}) {
    const std::unique_ptr<ComputePool> pool = *ComputePool::Create(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(count);
      pool->ParallelFor(count, [&](int64_t index, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        done[index].fetch_add(1);
      });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ComputePoolTest, WhatAThreadWroteIsSeenAfterTheCall) {
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(3);
  std::vector<int64_t> plain(64, 0);
  for (int round = 1; round <= 200; ++round) {
    pool->ParallelFor(64, [&](int64_t index, int) { plain[index] += index; });
    for (int64_t index = 0; index < 64; ++index) ASSERT_EQ(plain[index], index * round);
  }
}

TEST(ComputePoolTest, OneCallAtATimeOnAThread) {
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(4);
  std::vector<int> running(4, 0);  // Not atomic: each belongs to one thread.
  pool->ParallelFor(500, [&](int64_t, int thread) {
    EXPECT_EQ(++running[thread], 1);
    --running[thread];
  });
}

TEST(ComputePoolTest, OtherThreadsTakePart) {
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(2);
  std::atomic<int> inside{0};
  // Neither call ends before the other has begun, so two threads it must be.
  pool->ParallelFor(2, [&](int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

}  // namespace
}  // namespace annulus
