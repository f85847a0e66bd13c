#include "worker/data_plane/ended_shards.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

ShardId Id(size_t n) { return {absl::StrCat("a job whose name is long: ", n), 1, 0}; }

TEST(EndedShards, TheLastOnesAreKnown) {
  EndedShards ended;
  EXPECT_FALSE(ended.Has(Id(0)));
  for (size_t n = 0; n < EndedShards::kMost; ++n) ended.Add(Id(n));
  EXPECT_TRUE(ended.Has(Id(0)));
  ended.Add(Id(EndedShards::kMost));
  EXPECT_FALSE(ended.Has(Id(0)));
  EXPECT_TRUE(ended.Has(Id(1)));
  EXPECT_TRUE(ended.Has(Id(EndedShards::kMost)));
}

TEST(EndedShards, OneThatEndsTwiceIsOne) {
  EndedShards ended;
  ended.Add(Id(0));
  for (size_t n = 1; n < EndedShards::kMost; ++n) {
    ended.Add(Id(n));
    ended.Add(Id(1));
  }
  EXPECT_TRUE(ended.Has(Id(0)));
}

TEST(EndedShards, RanksAndAttemptsAreApart) {
  EndedShards ended;
  ended.Add({"job", 1, 0});
  EXPECT_FALSE(ended.Has({"job", 1, 1}));
  EXPECT_FALSE(ended.Has({"job", 2, 0}));
  EXPECT_TRUE(ended.Has({"job", 1, 0}));
}

}  // namespace
}  // namespace annulus
