// ChooseExecution considers shards by area if layouts that are cheaper to plan give some rank more
// work than the others.
#include <algorithm>
#include <utility>
#include <vector>

#include "attention/planning/choose_execution.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

namespace annulus {
namespace {

// Causal documents, one of which is most of the work, and a bias that makes exchanges of heads
// slow.
AttentionSpec Documents(int64_t parts) {
  AttentionSpec spec = CostSpec(0, 0, true);
  spec.sequences.clear();
  for (const int64_t rows : {12000, 2000, 1000, 500, 300, 200, 384})
    spec.sequences.push_back({rows / parts, rows / parts, "", 0, 0});
  spec.modifiers.bias = Bias{DataType::kFp32, 1};
  return spec;
}

Execution OfSize(int32_t size) {
  Execution wanted;
  wanted.world_size = size;
  return wanted;
}

std::vector<Candidate> Chosen(const AttentionSpec& spec, const Execution& wanted,
                              const Choice& choice = Offer({1, 2, 4, 8})) {
  auto candidates = ChooseExecution(spec, wanted, choice);
  EXPECT_TRUE(candidates.ok()) << candidates.status();
  return candidates.ok() ? *std::move(candidates) : std::vector<Candidate>(1);
}

Choice Kernels(double pair_seconds) {
  Choice choice = Offer({8});
  choice.rates.pair_seconds = pair_seconds;
  return choice;
}

int64_t ByArea(const std::vector<Candidate>& candidates, bool counted) {
  return std::count_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return candidate.execution.layout == Layout::kByArea &&
           candidate.cost.bytes_sent.empty() != counted;
  });
}

// Ranks that exchange heads are even in any layout, which does not imply that the others are.
TEST(UnevenLayoutsTest, AnExchangeDoesNotHideThatRingsAreUneven) {
  const std::vector<Candidate> candidates = Chosen(Documents(1), OfSize(4));
  const Candidate& taken = candidates.front();
  EXPECT_EQ(taken.execution.layout, Layout::kByArea);
  EXPECT_LT(taken.cost.balance, 1.03);
  bool even = false;
  for (const Candidate& candidate : candidates) {
    if (candidate.execution.layout == Layout::kByArea) continue;
    even = even || candidate.cost.balance == 1;
    EXPECT_GT(candidate.cost.seconds, 1.3 * taken.cost.seconds);
  }
  EXPECT_TRUE(even) << "the case does not occur";
}

TEST(UnevenLayoutsTest, OnlyWhereALayoutDecidesShardsByAreaAreLookedAt) {
  EXPECT_EQ(ByArea(Chosen(CostSpec(16384, 16384, true), OfSize(4)), true), 0) << "zigzag is even";
  Execution wanted = OfSize(4);
  wanted.strategy = Strategy::kUlysses;
  EXPECT_EQ(ByArea(Chosen(Documents(1), wanted), true), 0);
  wanted.head_deal = HeadAssignment::kWholeHeads;
  AttentionSpec spec = Documents(1);
  spec.q_heads = spec.kv_heads = 6;  // Uneven by heads, in any layout.
  EXPECT_EQ(ByArea(Chosen(spec, wanted), true), 0);
  wanted.head_deal = HeadAssignment::kUnits;  // Some heads of some rows.
  EXPECT_EQ(ByArea(Chosen(spec, wanted), true), 1);
  wanted = Execution();
  wanted.ulysses_degree = wanted.ring_degree = 2;
  EXPECT_EQ(ByArea(Chosen(Documents(1), wanted), true), 1);
}

// Zigzag shards are even, but need the keys of two documents.
TEST(UnevenLayoutsTest, ShardsThatNoRankHasMemoryForAreNotEven) {
  AttentionSpec spec = CostSpec(0, 0, false);
  spec.sequences = {{400, 10000, "", 0, 0},
                    {400, 10000, "", 0, 0},
                    {400, 30000, "", 0, 0},
                    {400, 30000, "", 0, 0}};
  Execution wanted = OfSize(4);
  wanted.strategy = Strategy::kAllGatherKv;
  Choice choice = Offer({4});
  const std::vector<Candidate> all = Chosen(spec, wanted, choice);
  ASSERT_EQ(all.size(), 2u) << "shards by area are looked at";
  ASSERT_EQ(all[0].execution.layout, Layout::kZigzag);
  ASSERT_LT(all[1].cost.peak_bytes_per_rank, all[0].cost.peak_bytes_per_rank);
  choice.max_peak_bytes = all[1].cost.peak_bytes_per_rank;
  EXPECT_EQ(ByArea(Chosen(spec, wanted, choice), true), 1);
}

// With 8 ranks, planning by area takes a few milliseconds.
TEST(UnevenLayoutsTest, ALookThatTakesLongerThanItCouldSaveIsNotTaken) {
  const AttentionSpec spec = Documents(8);
  const auto slow = Chosen(spec, OfSize(8), Kernels(5e-9));
  EXPECT_EQ(slow.front().execution.layout, Layout::kByArea);
  EXPECT_GT(ByArea(slow, true), 0);
  EXPECT_GT(ByArea(slow, false), 0) << "what is left to save is less than another look";
  const auto quick = Chosen(spec, OfSize(8), Kernels(1e-10));
  EXPECT_EQ(ByArea(quick, true), 0);
  EXPECT_GT(ByArea(quick, false), 0);
}

TEST(UnevenLayoutsTest, WhoAsksForAllIsShownAllAndTheSameIsTaken) {
  for (const double pair_seconds : {5e-9, 1e-10}) {
    Choice choice = Kernels(pair_seconds);
    const auto some = Chosen(Documents(8), OfSize(8), choice);
    choice.count_all = true;
    const auto all = Chosen(Documents(8), OfSize(8), choice);
    EXPECT_EQ(ByArea(all, true), ByArea(some, true) + ByArea(some, false));
    EXPECT_EQ(ByArea(all, false), 0);
    EXPECT_EQ(all.front().execution.strategy, some.front().execution.strategy);
    EXPECT_EQ(all.front().execution.layout, some.front().execution.layout);
  }
}

}  // namespace
}  // namespace annulus
