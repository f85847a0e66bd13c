#include "worker/kernel/compute_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

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
  // Neither call ends before the other has begun, so there must be two threads.
  pool->ParallelFor(2, [&](int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ComputePoolTest, AThreadBeginsWithTheIndexOfItsNumber) {
  constexpr int kThreads = 3;
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(kThreads);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> inside{0};
    pool->ParallelFor(kThreads, [&](int64_t index, int thread) {
      EXPECT_EQ(index, thread);
      inside.fetch_add(1);
      while (inside.load() < kThreads) std::this_thread::yield();
    });
  }
}

TEST(ComputePoolTest, WhatAStuckThreadLeavesIsDoneByAnotherInOrder) {
  constexpr int64_t kCount = 10;
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(2);
  std::vector<int64_t> done;  // By the owner.
  std::atomic<bool> begun{false};
  std::atomic<int64_t> left{kCount - 1};
  pool->ParallelFor(kCount, [&](int64_t index, int thread) {
    if (index == 1) {
      EXPECT_EQ(thread, 1);
      begun = true;
      while (left.load() > 0) std::this_thread::yield();
      return;
    }
    EXPECT_EQ(thread, 0);
    while (!begun.load()) std::this_thread::yield();
    done.push_back(index);
    left.fetch_sub(1);
  });
  EXPECT_EQ(done, (std::vector<int64_t>{0, 2, 4, 6, 8, 3, 5, 7, 9}));
}

cpu_set_t CpusOfThisThread() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
  return cpus;
}

TEST(ComputePoolTest, AsManyThreadsAsCpusAreKeptApart) {
  const cpu_set_t allowed = CpusOfThisThread();
  const int threads = CPU_COUNT(&allowed);
  if (threads < 2 || threads > 8) GTEST_SKIP() << threads << " CPUs: threads are not spread here";
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(threads);
  std::vector<cpu_set_t> cpus(threads);
  std::atomic<int> inside{0};
  pool->ParallelFor(threads, [&](int64_t, int thread) {
    cpus[thread] = CpusOfThisThread();
    inside.fetch_add(1);
    while (inside.load() < threads) std::this_thread::yield();
  });
  EXPECT_TRUE(CPU_EQUAL(&cpus[0], &allowed)) << "the owner goes where it likes";
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int thread = 1; thread < threads; ++thread) {
    EXPECT_EQ(CPU_COUNT(&cpus[thread]), 1);
    CPU_OR(&all, &all, &cpus[thread]);
  }
  EXPECT_EQ(CPU_COUNT(&all), threads - 1) << "two share one";
}

TEST(ComputePoolTest, AnotherNumberOfThreadsGoesWhereItLikes) {
  const cpu_set_t allowed = CpusOfThisThread();
  const int threads = CPU_COUNT(&allowed) + 1;
  const std::unique_ptr<ComputePool> pool = *ComputePool::Create(threads);
  pool->ParallelFor(threads, [&](int64_t, int) {
    const cpu_set_t cpus = CpusOfThisThread();
    EXPECT_TRUE(CPU_EQUAL(&cpus, &allowed));
  });
}

}  // namespace
}  // namespace annulus
