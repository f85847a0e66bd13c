// What ChooseExecution says of ways that could not save anything, for who asks.
#include "attention/choose_execution.h"
#include "gtest/gtest.h"
#include "tests/attention/cost_cases.h"

namespace annulus {
namespace {

TEST(CountedWaysTest, WhatCannotBeTakenIsCountedAndNotTaken) {
  for (const int64_t rows : {4, 1000, 4000}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(rows);
      const AttentionSpec spec = CostSpec(rows, rows, causal);
      Choice choice = Offer({1, 2, 4});
      const auto bounded = ChooseExecution(spec, {}, choice);
      choice.count_all = true;
      const auto counted = ChooseExecution(spec, {}, choice);
      ASSERT_TRUE(bounded.ok() && counted.ok());
      const Candidate &taken = counted->front(), &same = bounded->front();
      EXPECT_EQ(taken.execution.strategy, same.execution.strategy);
      EXPECT_EQ(taken.execution.layout, same.execution.layout);
      EXPECT_EQ(taken.execution.world_size, same.execution.world_size);
      for (const Candidate& candidate : *counted) {
        EXPECT_EQ(candidate.cost.bytes_sent.size(), candidate.execution.world_size);
        EXPECT_EQ(candidate.rejected.empty(), &candidate == &taken);
      }
      if (rows > 4) continue;
      EXPECT_TRUE(bounded->back().cost.bytes_sent.empty());
      EXPECT_EQ(counted->back().rejected, "its fixed cost is more than sharing the work can save");
    }
  }
}

TEST(CountedWaysTest, LargeGroupsAreNotCounted) {
  Choice choice = Offer({1, 17});
  choice.count_all = true;
  const auto candidates = ChooseExecution(CostSpec(4, 4, false), {}, choice);
  ASSERT_TRUE(candidates.ok());
  EXPECT_EQ(candidates->back().execution.world_size, 17);
  EXPECT_TRUE(candidates->back().cost.bytes_sent.empty());
  EXPECT_NE(candidates->back().rejected.find("bytes were not counted"), std::string::npos);
}

}  // namespace
}  // namespace annulus
