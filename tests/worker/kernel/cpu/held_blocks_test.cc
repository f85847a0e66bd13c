#include "worker/kernel/cpu/held_blocks.h"

#include <map>
#include <random>
#include <set>
#include <utility>

#include "gtest/gtest.h"
#include "tests/seed.h"

namespace annulus {
namespace {

BlockId Id(uint64_t content, int64_t block, int32_t head = 0) {
  return {content, head, block, {block * 256, block * 256 + 256}};
}
std::vector<BlockId> Blocks(uint64_t content, int64_t begin, int64_t end) {
  std::vector<BlockId> blocks;
  for (int64_t block = begin; block < end; ++block) blocks.push_back(Id(content, block));
  return blocks;
}
std::vector<int64_t> Slots(const std::vector<HeldBlocks::Place>& places) {
  std::vector<int64_t> slots;
  for (const HeldBlocks::Place& place : places) slots.push_back(place.slot);
  return slots;
}
int Held(const std::vector<HeldBlocks::Place>& places) {
  int held = 0;
  for (const HeldBlocks::Place& place : places) held += place.held;
  return held;
}

TEST(HeldBlocksTest, PartsOfOneBufferLieBesideEachOther) {
  HeldBlocks blocks;
  EXPECT_EQ(Slots(blocks.PlaceAll(Blocks(7, 0, 3), 8)), (std::vector<int64_t>{0, 1, 2}));
  const auto more = blocks.PlaceAll(Blocks(7, 1, 5), 8);
  EXPECT_EQ(Slots(more), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(Held(more), 2);
  EXPECT_EQ(Held(blocks.PlaceAll(Blocks(7, 0, 5), 8)), 5);
}

TEST(HeldBlocksTest, AnotherBufferTakesTheSamePlaces) {
  HeldBlocks blocks;
  blocks.PlaceAll(Blocks(7, 0, 3), 8);
  const auto other = blocks.PlaceAll(Blocks(8, 0, 2), 8);
  EXPECT_EQ(Slots(other), (std::vector<int64_t>{0, 1})) << "which are in a cache";
  EXPECT_EQ(Held(other), 0);
  EXPECT_EQ(Held(blocks.PlaceAll(Blocks(7, 0, 3), 8)), 0);
}

TEST(HeldBlocksTest, WhatWasUsedLastGoesFirst) {
  HeldBlocks blocks;
  blocks.PlaceAll(Blocks(7, 0, 2), 4);
  blocks.PlaceAll(Blocks(7, 2, 4), 4);
  EXPECT_EQ(Slots(blocks.PlaceAll(Blocks(7, 4, 6), 4)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(Held(blocks.PlaceAll(Blocks(7, 0, 2), 4)), 2) << "the round begins again";
}

TEST(HeldBlocksTest, WhatIsNotKnownIsLikeNoOther) {
  HeldBlocks blocks;
  blocks.PlaceAll(Blocks(0, 0, 3), 8);
  EXPECT_EQ(Held(blocks.PlaceAll(Blocks(0, 0, 3), 8)), 0) << "of no number";
  BlockId runs = Id(7, 0);
  runs.rows = {};
  blocks.PlaceAll({runs}, 8);
  EXPECT_EQ(Held(blocks.PlaceAll({runs}, 8)), 0) << "of several runs";
  blocks.PlaceAll({Id(7, 0)}, 8);
  BlockId part = Id(7, 0);
  --part.rows.end;
  EXPECT_EQ(Held(blocks.PlaceAll({part}, 8)), 0) << "of other rows";
  EXPECT_EQ(Held(blocks.PlaceAll({Id(7, 0, 1)}, 8)), 0) << "of another head";
  blocks.Forget();
  EXPECT_EQ(Held(blocks.PlaceAll({Id(7, 0)}, 8)), 0);
}

// Compares with memory that is written to: a held block equals the block last packed there.
TEST(HeldBlocksTest, WhatIsHeldIsThere) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  HeldBlocks blocks;
  std::map<int64_t, std::pair<uint64_t, int64_t>> memory;  // By slot: content and block.
  int held = 0;
  for (int round = 0; round < 20000; ++round) {
    const int64_t room = 1 + below(12);
    std::set<std::pair<uint64_t, int64_t>> wanted;
    const uint64_t content = below(4);  // 0 means unknown.
    const int64_t count = 1 + below(static_cast<uint32_t>(room));
    for (int64_t i = 0; i < count; ++i)
      wanted.insert({below(8) == 0 ? below(4) : content, below(10)});
    std::vector<BlockId> ids;
    for (const auto& [of, block] : wanted) ids.push_back(Id(of, block));
    const auto places = blocks.PlaceAll(ids, room);
    ASSERT_EQ(places.size(), ids.size());
    std::set<int64_t> slots;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_GE(places[i].slot, 0);
      ASSERT_LT(places[i].slot, room);
      ASSERT_TRUE(slots.insert(places[i].slot).second) << "two blocks in one place";
      auto& there = memory[places[i].slot];
      const auto id = std::make_pair(ids[i].content, ids[i].block);
      if (places[i].held) {
        ++held;
        ASSERT_NE(ids[i].content, 0u);
        ASSERT_EQ(there, id) << "round " << round;
      }
      there = id;
    }
  }
  EXPECT_GT(held, 1000);
}

}  // namespace
}  // namespace annulus
