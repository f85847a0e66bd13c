// The checker on schedules for a device that reads staging and a kernel that ends rows.

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/passes/row_ends.h"
#include "attention/schedule/passes/segment_steps.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

// A group's schedules in this form.
struct Ended {
  Ended(const BuiltCase& built, int32_t parts_of_step) : built(built) {
    for (const RankSchedule& rank : built.ranks) {
      const std::vector<int32_t> parts(rank.steps.size(), parts_of_step);
      const RankSchedule split = SplitSteps(rank, built.request, parts);
      in_staging.push_back(BuffersInStaging(split));
      ranks.push_back(WithRowEnds(split, in_staging.back()));
      placements.push_back(Place(ranks.back(), in_staging.back()));
    }
  }
  ArenaPlan Place(const RankSchedule& rank, const std::vector<bool>& staged) const {
    return PlanArena(rank, BlockLayout(built.spec), 4, staged);
  }
  absl::Status Check() const { return CheckSchedule(built.request, ranks, placements, in_staging); }
  // Checks a damaged schedule with memory planned again.
  absl::Status CheckPlacedAgain() {
    for (size_t r = 0; r < ranks.size(); ++r) placements[r] = Place(ranks[r], in_staging[r]);
    return Check();
  }
  // All tasks of a rank, in order.
  std::vector<Task*> Tasks(size_t rank = 0) {
    std::vector<Task*> tasks;
    for (Step& step : ranks[rank].steps)
      for (Task& task : step.tasks) tasks.push_back(&task);
    return tasks;
  }

  const BuiltCase& built;
  std::vector<RankSchedule> ranks;
  std::vector<ArenaPlan> placements;
  std::vector<std::vector<bool>> in_staging;
};

// Checks random forms and records which it has covered.
class Forms {
 public:
  // Checks a job on a random plan, whole and in parts.
  void Check(const AttentionSpec& spec, int32_t world, Strategy strategy) {
    const std::vector<PlanOptions> plans = TestPlans(world);
    const auto plan = static_cast<size_t>(Below(static_cast<int64_t>(plans.size())));
    const ScheduleCase one(spec, plans[plan], strategy, Below(64));
    const BuiltCase built(one);
    for (const int32_t parts : {1, 3}) {
      Ended ended(built, parts);
      const absl::Status checked = ended.Check();
      ASSERT_TRUE(checked.ok()) << Describe(one) << " in " << parts << " parts: " << checked;
      for (size_t r = 0; r < ended.ranks.size(); ++r) {
        const std::vector<Task*> tasks = ended.Tasks(r);
        ending_ += std::count_if(tasks.begin(), tasks.end(),
                                 [](const Task* task) { return task->out >= 0; });
        staged_ += std::count(ended.in_staging[r].begin(), ended.in_staging[r].end(), true);
      }
    }
    met_.insert({strategy, spec.operation, plan});
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }
  int64_t ending() const { return ending_; }
  int64_t staged() const { return staged_; }
  // Strategies × operations × plans.
  size_t met() const { return met_.size(); }

 private:
  std::mt19937_64 random_{19};
  std::set<std::tuple<Strategy, Operation, size_t>> met_;
  int64_t ending_ = 0, staged_ = 0;
};

TEST(CheckerRowEndsTest, AcceptsEveryStrategyInThisForm) {
  Forms forms;
  for (const Mask& mask : TestMasks()) {
    for (const int32_t world : {1, 2, 3}) {
      for (const Strategy strategy : TestStrategies()) {
        for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
          AttentionSpec spec = SmallSpec(4, 2, {Lengths(23, 31), Lengths(9, 9)}, mask);
          VaryMasks(forms.Below(kMaskWays), &spec);
          if (operation == Operation::kGradients) AskForGradients(forms.Below(2) == 0, &spec);
          forms.Check(spec, world, strategy);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(forms.ending(), 1000);
  EXPECT_GT(forms.staged(), 1000);
  EXPECT_EQ(forms.met(), TestStrategies().size() * 2 * TestPlans(1).size());
}

class Damaged : public testing::Test {
 protected:
  // One rank, causal, in three parts: rows that meet several tasks. `placed_again`: memory is
  // planned after the damage, which uses existing buffers only.
  std::string RuleBroken(const std::function<void(Ended&)>& damage, bool placed_again = true) {
    const BuiltCase built(
        {SmallSpec(4, 2, {Lengths(24, 24)}, Causal()), TestPlans(1)[0], Strategy::kRingPassKv});
    Ended ended(built, 1);
    SplitKv(ended);
    EXPECT_TRUE(ended.CheckPlacedAgain().ok()) << ended.Check();
    damage(ended);
    return DetailOf(placed_again ? ended.CheckPlacedAgain() : ended.Check()).metadata["rule"];
  }
  static Mask Causal() {
    Mask mask;
    mask.causal = true;
    return mask;
  }
  // Splits the one task by keys: rows begin in the first part and end in the second, which has
  // their last keys.
  static void SplitKv(Ended& ended) {
    std::vector<Task>& tasks = ended.ranks[0].steps[0].tasks;
    std::vector<Task> cut;
    for (const Task& whole : tasks) {
      Task first = whole, second = whole;
      first.k_end = second.k_begin = 12;
      first.coverage = second.coverage = Coverage::kPartial;
      first.ends = second.begins = {};
      first.out = -1;
      cut.push_back(first);
      cut.push_back(second);
    }
    tasks = cut;
  }
};

TEST_F(Damaged, RowsThatBeginInNoTaskHoldNothing) {
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[0]->begins = {}; }), "")
      << "then all of the state starts as the identity";
  EXPECT_EQ(RuleBroken([](Ended& e) { ++e.Tasks()[0]->begins.begin; }),
            "a task adds to rows that hold nothing");
}

TEST_F(Damaged, ARowThatBeginsTwiceLosesItsSums) {
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[1]->begins = e.Tasks()[0]->begins; }),
            "a row begins where it has begun");
}

TEST_F(Damaged, ARowEndsWithItsLastTask) {
  EXPECT_EQ(RuleBroken([](Ended& e) {
              std::swap(e.Tasks()[0]->ends, e.Tasks()[1]->ends),
                  std::swap(e.Tasks()[0]->out, e.Tasks()[1]->out);
            }),
            "a task adds to rows that hold nothing");
  EXPECT_EQ(RuleBroken([](Ended& e) {
              Task* last = e.Tasks()[1];
              last->ends = {};
              last->out = -1;
            }),
            "an output row is never finished");
  EXPECT_EQ(RuleBroken([](Ended& e) { --e.Tasks()[1]->ends.end; }),
            "an output row is never finished");
}

TEST_F(Damaged, AnOutputRowIsWrittenOnce) {
  EXPECT_EQ(RuleBroken([](Ended& e) {
              Task first = *e.Tasks()[0], second = *e.Tasks()[1];
              RankSchedule& rank = e.ranks[0];
              rank.buffers.push_back(rank.buffers[first.out_q]);
              e.in_staging[0].push_back(false);
              first.out_q = second.out_q = static_cast<int32_t>(rank.buffers.size()) - 1;
              rank.steps[0].tasks.push_back(first);
              rank.steps[0].tasks.push_back(second);
            }),
            "a task ends rows that are finished");
  EXPECT_EQ(RuleBroken([](Ended& e) {
              const Task& last = *e.Tasks()[1];
              e.ranks[0].steps[0].ops.push_back({Op::Kind::kFinish, last.out_q, last.out});
            }),
            "an op reads rows that are not there");
}

TEST_F(Damaged, WhatEndsLiesInTheTaskAndItsOutput) {
  const std::string rule = "rows begin or end outside their task or their output";
  EXPECT_EQ(RuleBroken([](Ended& e) { ++e.Tasks()[1]->ends.end; }), rule);
  EXPECT_EQ(RuleBroken([](Ended& e) { --e.Tasks()[0]->begins.begin; }), rule);
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[1]->out = -1; }), rule);
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[1]->out = e.Tasks()[1]->out_q; }), rule);
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[0]->out = e.Tasks()[1]->out; }), rule);
  EXPECT_EQ(RuleBroken([](Ended& e) { e.Tasks()[1]->out = 1000; }, /*placed_again=*/false), rule);
}

TEST_F(Damaged, WhatIsNotInStagingHasASlot) {
  EXPECT_EQ(RuleBroken([](Ended& e) {
              const int32_t state = e.Tasks()[0]->out_q;
              e.in_staging[0][state] = true;
            }),
            "staging has no room for what is no input or output");
  const BuiltCase built(
      {SmallSpec(4, 2, {Lengths(24, 24)}, Causal()), TestPlans(1)[0], Strategy::kRingPassKv});
  Ended ended(built, 1);
  ended.in_staging.clear();
  EXPECT_EQ(DetailOf(ended.Check()).reason, "SCHEDULE_BROKEN") << "placed for staging";
  Ended placed(built, 1);
  placed.placements[0] = placed.Place(placed.ranks[0], {});
  EXPECT_EQ(DetailOf(placed.Check()).metadata["rule"], "a buffer in staging has a slot");
}

TEST_F(Damaged, NothingOfStagingIsSentOrChanged) {
  const BuiltCase group(
      {SmallSpec(4, 2, {Lengths(24, 24)}, Causal()), TestPlans(2)[0], Strategy::kRingPassKv});
  Ended sends(group, 1);
  sends.in_staging[0][sends.ranks[0].steps[0].sends.at(0).buffer] = true;
  EXPECT_EQ(DetailOf(sends.CheckPlacedAgain()).metadata["rule"], "a transfer with staging");

  AttentionSpec spec = SmallSpec(4, 2, {Lengths(24, 24)}, Causal());
  AskForGradients(false, &spec);
  const BuiltCase gradients({spec, TestPlans(1)[0], Strategy::kRingPassKv});
  Ended completes(gradients, 1);
  for (const Step& step : completes.ranks[0].steps)
    for (const Op& op : step.ops)
      if (op.kind == Op::Kind::kDelta) completes.in_staging[0][op.target] = true;
  EXPECT_EQ(DetailOf(completes.CheckPlacedAgain()).metadata["rule"],
            "an input in staging is written");
}

}  // namespace
}  // namespace annulus
