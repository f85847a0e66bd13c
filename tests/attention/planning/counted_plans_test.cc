// ChooseExecution reports candidates that could not save time, if the caller requests all.
#include <map>
#include <string>
#include <utility>

#include "attention/planning/choose_execution.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

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
      EXPECT_EQ(counted->at(1).rejected, "its fixed cost is more than sharing the work can save");
    }
  }
}

// By strategy and layout: the reason of candidates that are used only on request.
std::map<std::pair<Strategy, Layout>, std::string> Aside(const AttentionSpec& spec,
                                                         const Execution& wanted) {
  Choice choice = Offer({1, 2, 4});
  choice.count_all = true;
  std::map<std::pair<Strategy, Layout>, std::string> aside;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  EXPECT_TRUE(candidates.ok()) << candidates.status();
  for (const Candidate& candidate : *candidates) {
    if (candidate.rejected.rfind("left aside: ", 0) != 0) continue;
    EXPECT_GT(candidate.cost.expected_seconds, 0);
    EXPECT_FALSE(candidate.cost.bytes_sent.empty());
    aside[{candidate.execution.strategy, candidate.execution.layout}] = candidate.rejected;
  }
  return aside;
}

TEST(CountedWaysTest, WhatIsNeverTakenUnaskedIsShownWithWhy) {
  AttentionSpec spec = CostSpec(4096, 4096, true);
  auto aside = Aside(spec, {});
  for (const Strategy strategy : {Strategy::kHalo, Strategy::kDoubleRing}) {
    for (const Layout layout : {Layout::kContiguous, Layout::kZigzag}) {
      EXPECT_EQ(aside.count({strategy, layout}), 1u) << StrategyName(strategy);
    }
  }
  EXPECT_EQ(aside.count({Strategy::kRotateKv, Layout::kStriped}), 1u);
  EXPECT_EQ(aside.size(), 5u) << "one sequence has no zigzag of its own";
  spec.sequences.push_back(spec.sequences[0]);
  EXPECT_EQ(Aside(spec, {}).count({Strategy::kRotateKv, Layout::kZigzagPerSequence}), 1u);
  spec.sequences.resize(33, spec.sequences[0]);
  EXPECT_EQ(Aside(spec, {}).size(), 5u) << "too many to be cut one by one";
  spec.sequences.resize(2);
  spec.masks[0].window_left = 8;
  EXPECT_EQ(Aside(spec, {}).count({Strategy::kRotateKv, Layout::kStriped}), 0u);
  spec.masks[0].window_left.reset();
  Execution named;
  named.strategy = Strategy::kRingPassKv;
  aside = Aside(spec, named);
  EXPECT_EQ(aside.count({Strategy::kRingPassKv, Layout::kStriped}), 1u);
  EXPECT_EQ(aside.size(), 2u);
  named.layout = Layout::kZigzag;
  EXPECT_TRUE(Aside(spec, named).empty());
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
