#include "attention/schedule/strategies/head_partition.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

HeadPartition Shares(int32_t q_heads, int32_t kv_heads, int32_t members, HeadAssignment deal) {
  AttentionSpec spec;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  return HeadPartition(spec, {members, 1, 1, deal});
}

// (head, member) units that `member` computes.
int64_t Units(const HeadPartition& shares, int32_t members, int32_t member) {
  int64_t units = 0;
  for (int32_t of = 0; of < members; ++of) units += shares.Queries(of, member).length();
  return units;
}

// Key/value heads that members other than their owners receive, in heads × members' rows.
int64_t Moved(const HeadPartition& shares, int32_t members) {
  int64_t moved = 0;
  for (int32_t member = 0; member < members; ++member) {
    const Interval atoms = shares.AtomsOf(member);
    for (int64_t a = atoms.begin; a < atoms.end; ++a) moved += shares.atoms()[a].length();
  }
  return moved * (members - 1);
}

TEST(HeadPartitionTest, EveryHeadOfEveryRowIsComputedOnceWithTheKeysItNeeds) {
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {6, 3}, {8, 1}, {5, 5}, {7, 7}, {12, 4}};
  for (const auto& heads : kHeads) {
    for (int32_t members = 1; members <= 16; ++members) {
      for (const HeadAssignment deal : {HeadAssignment::kWholeHeads, HeadAssignment::kUnits}) {
        const HeadPartition shares = Shares(heads[0], heads[1], members, deal);
        int64_t at = 0;
        for (const Interval& atom : shares.atoms()) {
          EXPECT_EQ(atom.begin, at);
          EXPECT_GT(atom.length(), 0);
          at = atom.end;
        }
        EXPECT_EQ(at, heads[1]);
        for (int32_t of = 0; of < members; ++of) {
          int64_t next = 0;
          for (int32_t member = 0; member < members; ++member) {
            const Interval own = shares.Queries(of, member);
            EXPECT_EQ(own.begin, next);
            next = std::max(next, own.end);
            const Interval atoms = shares.AtomsOf(member);
            for (int64_t h = own.begin; h < own.end; ++h) {
              const int64_t kv = h / (heads[0] / heads[1]);
              EXPECT_LE(shares.atoms()[atoms.begin].begin, kv);
              EXPECT_GT(shares.atoms()[atoms.end - 1].end, kv);
            }
          }
          EXPECT_EQ(next, heads[0]);
        }
        for (int32_t member = 0; deal == HeadAssignment::kUnits && member < members; ++member) {
          EXPECT_EQ(Units(shares, members, member), heads[0]);
        }
      }
    }
  }
}

TEST(HeadPartitionTest, UnitsAreWholeHeadsWhereTheDegreeDividesThem) {
  const HeadPartition whole = Shares(12, 4, 4, HeadAssignment::kWholeHeads);
  const HeadPartition units = Shares(12, 4, 4, HeadAssignment::kUnits);
  EXPECT_TRUE(whole.atoms() == units.atoms());
  for (int32_t of = 0; of < 4; ++of) {
    for (int32_t member = 0; member < 4; ++member) {
      EXPECT_EQ(whole.Queries(of, member), units.Queries(of, member));
    }
  }
}

// Six heads over four ranks: whole heads give 1.33 times the mean work, units are even for half a
// key/value tensor more. Two heads over eight ranks: six idle ranks, or none for seven tensors.
TEST(HeadPartitionTest, UnitsBuyBalanceWithKeys) {
  const auto most = [](const HeadPartition& shares, int32_t members) {
    int64_t most = 0;
    for (int32_t m = 0; m < members; ++m) most = std::max(most, Units(shares, members, m));
    return most;
  };
  EXPECT_EQ(most(Shares(6, 3, 4, HeadAssignment::kWholeHeads), 4), 8);
  EXPECT_EQ(most(Shares(6, 3, 4, HeadAssignment::kUnits), 4), 6);
  EXPECT_EQ(Moved(Shares(6, 3, 4, HeadAssignment::kWholeHeads), 4),
            15);                                                     // 1.25 × 3 heads × 4 ranks.
  EXPECT_EQ(Moved(Shares(6, 3, 4, HeadAssignment::kUnits), 4), 18);  // 1.5
  EXPECT_EQ(most(Shares(2, 1, 8, HeadAssignment::kWholeHeads), 8), 8);
  EXPECT_EQ(most(Shares(2, 1, 8, HeadAssignment::kUnits), 8), 2);
  EXPECT_EQ(Moved(Shares(2, 1, 8, HeadAssignment::kWholeHeads), 8), 14);  // 1.75
  EXPECT_EQ(Moved(Shares(2, 1, 8, HeadAssignment::kUnits), 8), 56);       // 7
}

}  // namespace
}  // namespace annulus
