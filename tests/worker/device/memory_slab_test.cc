#include "worker/device/memory_slab.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int64_t kBytes = 1 << 20;

std::shared_ptr<MemorySlab> NewSlab() {
  void* memory = nullptr;
  EXPECT_EQ(posix_memalign(&memory, 256, kBytes), 0);
  return MemorySlab::Create(std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), std::free),
                            kBytes);
}

TEST(MemorySlab, LendsAllOfItselfAndNoMore) {
  const auto slab = NewSlab();
  auto all = slab->Take(kBytes);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(slab->Take(0), nullptr);
  EXPECT_EQ(slab->free_bytes(), 0);
  all.reset();
  EXPECT_EQ(slab->largest_gap(), kBytes);
  EXPECT_EQ(slab->Take(kBytes + 1), nullptr);
}

TEST(MemorySlab, KnowsItsOwn) {
  const auto slab = NewSlab();
  const auto piece = slab->Take(1000);
  EXPECT_TRUE(slab->Holds(piece.get(), kBytes));
  EXPECT_FALSE(slab->Holds(piece.get(), kBytes + 1));
  EXPECT_FALSE(slab->Holds(piece.get() + 1, kBytes));
  EXPECT_FALSE(slab->Holds(piece.get() - 1, 1));
}

TEST(MemorySlab, PiecesOutliveTheirOwnersName) {
  auto slab = NewSlab();
  const auto piece = slab->Take(100);
  slab.reset();
  piece.get()[99] = std::byte{1};
  EXPECT_EQ(piece.get()[99], std::byte{1});
}

// Random takes and returns: pieces are aligned and disjoint, and all gaps merge again.
TEST(MemorySlab, PiecesNeverOverlap) {
  const auto slab = NewSlab();
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  std::vector<std::pair<std::shared_ptr<std::byte>, int64_t>> held;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
      continue;
    }
    const int64_t bytes = random() % (kBytes / 8);
    auto piece = slab->Take(bytes);
    if (piece == nullptr) {
      EXPECT_LT(slab->largest_gap(), bytes + 256);
      ++refused;
      continue;
    }
    ASSERT_EQ(reinterpret_cast<uintptr_t>(piece.get()) % 256, 0u);
    ASSERT_TRUE(slab->Holds(piece.get(), bytes));
    for (const auto& [other, size] : held) {
      ASSERT_TRUE(piece.get() + bytes <= other.get() || other.get() + size <= piece.get());
    }
    held.emplace_back(std::move(piece), bytes);
  }
  EXPECT_GT(refused, 0);
  held.clear();
  EXPECT_EQ(slab->largest_gap(), kBytes);
}

// Each thread writes to its whole piece: overlapping pieces would be a race.
TEST(MemorySlab, ThreadsTakeAndReturnAtOnce) {
  const auto slab = NewSlab();
  const auto work = [&slab](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 300; ++i) {
      const int64_t bytes = 1 + random() % (kBytes / 64);
      const auto piece = slab->Take(bytes);
      if (piece != nullptr) std::memset(piece.get(), static_cast<int>(seed), bytes);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slab->largest_gap(), kBytes);
}

}  // namespace
}  // namespace annulus
