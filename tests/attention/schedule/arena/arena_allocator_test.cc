#include "attention/schedule/arena/arena_allocator.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/seed.h"

namespace annulus {
namespace {

struct Placed {
  ArenaAllocator::Life life;
  int64_t bytes = 0, offset = 0;
};

// Compares with every other slot.
int64_t LowestFree(const Placed& next, const std::vector<Placed>& placed) {
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (const Placed& other : placed) {
    if (other.bytes > 0 && other.life.first <= next.life.second &&
        next.life.first <= other.life.second) {
      taken.emplace_back(other.offset, other.offset + other.bytes);
    }
  }
  std::sort(taken.begin(), taken.end());
  int64_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - offset >= next.bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

std::vector<ArenaAllocator::Life> LivesOf(const std::vector<Placed>& slots) {
  std::vector<ArenaAllocator::Life> lives;
  for (const Placed& slot : slots) lives.push_back(slot.life);
  return lives;
}

TEST(ArenaAllocatorTest, EachSlotLiesAtTheLowestOffsetThatIsFree) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Placed> slots(1 + random() % 60);
    const int32_t last = 1 + static_cast<int32_t>(random() % 20);
    for (Placed& slot : slots) {
      const auto born = static_cast<int32_t>(random() % last);
      slot.life = {born, born + static_cast<int32_t>(random() % 5)};
      slot.bytes = static_cast<int64_t>(random() % 6);
    }
    ArenaAllocator arena(LivesOf(slots));
    for (int round = 0; round < 2; ++round) {
      arena.Clear();
      std::vector<Placed> placed;
      for (Placed& slot : slots) {
        slot.offset = arena.Place(slot.life, slot.bytes);
        ASSERT_EQ(slot.offset, LowestFree(slot, placed)) << trial;
        placed.push_back(slot);
      }
    }
  }
}

// Like 64 ranks that receive two rows of each of 64 sequences from each other, with their
// gradients: 4,032 buffers of keys and twice as many sums, alive in different steps.
TEST(ArenaAllocatorTest, ThousandsOfSlotsAreNotComparedWithOneAnother) {
  std::vector<Placed> slots;
  for (int i = 0; i < 4032; ++i) {
    slots.push_back({{0, 2}, 1024});
    slots.push_back({{2, 6}, 2048});
    slots.push_back({{4, 5}, 2048});
  }
  std::mt19937_64 random(7);
  for (const bool mixed : {false, true}) {
    if (mixed) std::shuffle(slots.begin(), slots.end(), random);
    ArenaAllocator arena(LivesOf(slots));
    int64_t bytes = 0;
    for (const Placed& slot : slots) {
      bytes = std::max(bytes, arena.Place(slot.life, slot.bytes) + slot.bytes);
    }
    EXPECT_LT(bytes, 4032 * (2048 + 2048) * 11 / 10);
    EXPECT_LT(arena.looked_at(), 50 * static_cast<int64_t>(slots.size()));
  }
}

}  // namespace
}  // namespace annulus
