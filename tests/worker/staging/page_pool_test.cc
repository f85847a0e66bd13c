#include "worker/staging/page_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "worker/staging/memory_budget.h"

namespace annulus {
namespace {

TEST(MemoryBudgetTest, NeverGivesMoreThanItsLimit) {
  auto budget = MemoryBudget::Create("staging", 100);
  auto first = budget->Reserve(60);
  ASSERT_TRUE(first.ok());
  auto second = budget->Reserve(41);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(second.status()).reason, "BUDGET_EXCEEDED");
  EXPECT_EQ(DetailOf(second.status()).metadata["budget"], "staging");
  EXPECT_TRUE(budget->Reserve(40).ok());  // Returned at once.
  EXPECT_EQ(budget->used_bytes(), 60);
  *first = Reservation();
  EXPECT_EQ(budget->used_bytes(), 0);
  EXPECT_FALSE(budget->Reserve(-1).ok());
}

TEST(MemoryBudgetTest, AReservationKeepsItsBudgetAlive) {
  auto budget = MemoryBudget::Create("staging", 100);
  auto reservation = budget->Reserve(1);
  ASSERT_TRUE(reservation.ok());
  budget.reset();
  *reservation = Reservation();
}

TEST(PagePoolTest, BytesReturnInTheDestructor) {
  auto budget = MemoryBudget::Create("staging", 1 << 20);
  auto pool = PagePool::Create(budget);
  auto memory = pool->Allocate(1000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(budget->used_bytes(), 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->get()) % 4096, 0u);
  std::shared_ptr<std::byte> other = *memory;
  memory->reset();
  EXPECT_EQ(budget->used_bytes(), 1000);
  pool.reset();
  other.reset();
  EXPECT_EQ(budget->used_bytes(), 0);
}

TEST(PagePoolTest, FreedMemoryIsGivenOutAgain) {
  auto budget = MemoryBudget::Create("staging", 1 << 20);
  auto pool = PagePool::Create(budget);
  auto first = pool->Allocate(1 << 20);
  ASSERT_TRUE(first.ok());
  std::byte* const address = first->get();
  first->reset();
  EXPECT_EQ(pool->kept_bytes(), 1 << 20);
  auto second = pool->Allocate((1 << 20) - 4096);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->get(), address);
  EXPECT_EQ(pool->kept_bytes(), 0);
}

TEST(PagePoolTest, APieceThatIsGivenOutAgainHoldsNoMoreThanWasAskedFor) {
  constexpr int64_t kPage = 4096;
  auto budget = MemoryBudget::Create("staging", 80 * kPage);
  auto pool = PagePool::Create(budget);
  pool->Allocate(45 * kPage)->reset();
  ASSERT_EQ(pool->kept_bytes(), 45 * kPage);
  auto memory = pool->Allocate(40 * kPage);
  ASSERT_TRUE(memory.ok());
  unsigned char pages[5];
  EXPECT_EQ(mincore(memory->get() + 40 * kPage, 5 * kPage, pages), -1);  // Not mapped.
  std::memset(memory->get(), 1, 40 * kPage);
  memory->reset();
  EXPECT_EQ(pool->kept_bytes(), 40 * kPage);
}

TEST(PagePoolTest, WhatIsKeptMakesRoom) {
  auto budget = MemoryBudget::Create("staging", 1 << 20);
  auto pool = PagePool::Create(budget);
  pool->Allocate(512 << 10)->reset();
  EXPECT_EQ(pool->kept_bytes(), 512 << 10);
  auto large = pool->Allocate(768 << 10);
  ASSERT_TRUE(large.ok());
  EXPECT_LE(pool->kept_bytes(), 256 << 10);
}

// For example pinned memory: preferred while there is any, under the same budget, and never kept.
TEST(PagePoolTest, MemoryOfASourceIsPreferred) {
  auto budget = MemoryBudget::Create("staging", 1 << 20);
  std::vector<std::byte> own(8192);
  bool lent = false;
  auto pool = PagePool::Create(budget, [&](int64_t bytes) -> std::shared_ptr<std::byte> {
    if (lent || bytes > 8192) return nullptr;
    lent = true;
    return {own.data(), [&lent](std::byte*) { lent = false; }};
  });
  auto first = pool->Allocate(5000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->get(), own.data());
  EXPECT_EQ(budget->used_bytes(), 5000);
  auto second = pool->Allocate(5000);  // The source has no more.
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->get(), own.data());
  pool.reset();
  first->reset();
  EXPECT_FALSE(lent);
  EXPECT_EQ(budget->used_bytes(), 5000);
}

TEST(PagePoolTest, BesideASourceNothingIsKept) {
  constexpr int64_t kBytes = 1 << 20;
  auto budget = MemoryBudget::Create("staging", kBytes);
  bool empty = true;
  int64_t used_when_returned = 0;
  std::vector<std::byte> own(kBytes);
  auto pool = PagePool::Create(budget, [&](int64_t) -> std::shared_ptr<std::byte> {
    if (empty) return nullptr;
    return {own.data(), [&](std::byte*) { used_when_returned = budget->used_bytes(); }};
  });
  auto memory = pool->Allocate(kBytes);
  ASSERT_TRUE(memory.ok());
  std::byte* const address = memory->get();
  memory->reset();
  EXPECT_EQ(pool->kept_bytes(), 0);
  unsigned char page;
  EXPECT_EQ(mincore(address, 1, &page), -1);  // Not mapped.
  // The source's memory is returned before the bytes, so the next holder of the bytes finds it.
  empty = false;
  pool->Allocate(kBytes)->reset();
  EXPECT_EQ(used_when_returned, kBytes);
  EXPECT_EQ(budget->used_bytes(), 0);
}

TEST(PagePoolTest, ThreadsShareABudget) {
  auto budget = MemoryBudget::Create("staging", 1 << 20);
  auto pool = PagePool::Create(budget);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 300; ++i) {
        const int64_t bytes = 1 + random() % (400 << 10);
        auto memory = pool->Allocate(bytes);
        if (memory.ok()) std::memset(memory->get(), t, bytes);
        EXPECT_LE(budget->used_bytes(), budget->limit_bytes());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget->used_bytes(), 0);
}

}  // namespace
}  // namespace annulus
