// Executes both schedules with lists instead of numbers: the contributions to a row since its
// identity.

#include "attention/schedule/passes/row_ends.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/passes/segment_steps.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

using Cell = std::tuple<int32_t, int64_t, int32_t>;  // Buffer, row, head.
using Met = std::vector<int64_t>;
constexpr int64_t kJunk = -1, kFinished = -2;

// Executes one rank's partials and outputs.
class Player {
 public:
  explicit Player(const RankSchedule& schedule)
      : schedule_(schedule), placement_(PlanArena(schedule, BlockLayout(AttentionSpec()))) {}

  // The contributions to each output row at the end.
  std::map<Cell, Met> Play() {
    for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
      if (Kind(b) != BlockKind::kPartial) continue;
      ForEach(b, {0, 1 << 30}, 0, 1 << 30, [&](const Cell& cell) {
        met_[cell] = placement_.slots[b].starts_as_identity ? Met() : Met{kJunk};
      });
    }
    for (size_t k = 0; k < schedule_.steps.size(); ++k) PlayStep(static_cast<int64_t>(k));
    std::map<Cell, Met> outputs;
    for (const int32_t output : schedule_.outputs)
      ForEach(output, {0, 1 << 30}, 0, 1 << 30,
              [&](const Cell& cell) { outputs[cell] = met_[cell]; });
    return outputs;
  }

 private:
  BlockKind Kind(int64_t buffer) const { return schedule_.buffers[buffer].kind; }

  template <typename Fn>
  void ForEach(int64_t buffer, Interval rows, int32_t head_begin, int32_t head_end, const Fn& fn) {
    const Block& block = schedule_.buffers[buffer];
    for (int64_t row = std::max(rows.begin, block.row_begin);
         row < std::min(rows.end, block.row_end); ++row)
      for (int32_t head = std::max(head_begin, block.head_begin);
           head < std::min(head_end, block.head_end); ++head)
        fn({static_cast<int32_t>(buffer), row, head});
  }

  void PlayStep(int64_t k) {
    const Step& step = schedule_.steps[k];
    for (const Transfer& r : step.receives) {
      ForEach(r.buffer, {r.row_begin, r.row_end}, 0, 1 << 30, [&](const Cell& cell) {
        met_[cell] = {-1000 - k, std::get<1>(cell)};
      });
    }
    for (const Task& task : step.tasks) {
      if (task.out_q >= 0) PlayTask(task);
    }
    for (const Op& op : step.ops) {
      const Block& from = schedule_.buffers[op.source];
      ForEach(op.target, {from.row_begin, from.row_end}, from.head_begin, from.head_end,
              [&](Cell cell) {
                Met& to = met_[cell];
                std::get<0>(cell) = op.source;
                Met source = met_[cell];
                if (op.kind == Op::Kind::kMerge)
                  source.insert(source.begin(), to.begin(), to.end());
                if (op.kind == Op::Kind::kFinish) source.push_back(kFinished);
                to = source;
              });
    }
  }

  void PlayTask(const Task& task) {
    const auto within = [](const Interval& rows, const Cell& cell) {
      return rows.begin <= std::get<1>(cell) && std::get<1>(cell) < rows.end;
    };
    ForEach(task.out_q, {task.q_begin, task.q_end}, task.head_begin, task.head_end, [&](Cell cell) {
      Met& met = met_[cell];
      if (within(task.begins, cell)) met.clear();
      for (const int64_t part : {int64_t{task.kv}, task.k_begin, task.k_end}) met.push_back(part);
      if (!within(task.ends, cell)) return;
      Met out = met;
      out.push_back(kFinished);
      met = {kJunk};
      std::get<0>(cell) = task.out;
      met_[cell] = out;
    });
  }

  const RankSchedule& schedule_;
  const ArenaPlan placement_;
  std::map<Cell, Met> met_;
};

std::vector<bool> All(const RankSchedule& schedule) {
  return std::vector<bool>(schedule.buffers.size(), true);
}

int64_t Ended(const RankSchedule& schedule) {
  int64_t ended = 0;
  for (const Step& step : schedule.steps)
    for (const Task& task : step.tasks) ended += task.ends.length() > 0 ? 1 : 0;
  return ended;
}

int64_t Finishes(const RankSchedule& schedule) {
  int64_t finishes = 0;
  for (const Step& step : schedule.steps)
    for (const Op& op : step.ops) finishes += op.kind == Op::Kind::kFinish ? 1 : 0;
  return finishes;
}

// The number of tasks that end other rows than they begin.
int64_t Crossing(const RankSchedule& schedule) {
  int64_t crossing = 0;
  for (const Step& step : schedule.steps)
    for (const Task& task : step.tasks)
      crossing += task.ends.length() > 0 && !(task.ends == task.begins) ? 1 : 0;
  return crossing;
}

TEST(RowEndsTest, EveryOutputRowMeetsTheSameKeysInTheSameOrder) {
  int64_t ended = 0, left = 0, crossing = 0;
  int64_t way = 0;
  for (const Mask& mask : TestMasks()) {
    for (const int32_t world : {1, 2, 3}) {
      for (const PlanOptions& plan : TestPlans(world)) {
        for (const Strategy strategy : TestStrategies()) {
          AttentionSpec spec = SmallSpec(4, 2, {Lengths(23, 31), Lengths(9, 9)}, mask);
          VaryMasks(way++, &spec);
          const ScheduleCase one(spec, plan, strategy);
          const BuiltCase built(one);
          for (const RankSchedule& rank : built.ranks) {
            for (const int32_t parts : {1, 3}) {
              const RankSchedule whole =
                  SplitSteps(rank, built.request, std::vector<int32_t>(rank.steps.size(), parts));
              const RankSchedule ends = WithRowEnds(whole, All(whole));
              ASSERT_EQ(Player(whole).Play(), Player(ends).Play())
                  << Describe(one) << " in " << parts << " parts";
              ended += Ended(ends);
              left += Finishes(ends);
              crossing += Crossing(ends);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(ended, 10000);
  EXPECT_GT(crossing, 1000);
  EXPECT_GT(left, 500);
}

TEST(RowEndsTest, OneRankNeitherClearsItsStateNorFinishesIt) {
  for (const Mask& mask : {TestMasks()[0], TestMasks()[1]}) {
    const BuiltCase built(
        {SmallSpec(4, 2, {Lengths(100, 100)}, mask), TestPlans(1)[0], Strategy::kRingPassKv});
    const RankSchedule& rank = built.ranks[0];
    const std::vector<bool> in_staging = BuffersInStaging(rank);
    const RankSchedule ends = WithRowEnds(rank, in_staging);
    EXPECT_EQ(Finishes(ends), 0);
    const BlockLayout layout(built.spec);
    const ArenaPlan before = PlanArena(rank, layout, 128, in_staging);
    const ArenaPlan after = PlanArena(ends, layout, 128, in_staging);
    EXPECT_EQ(after.arena_bytes, before.arena_bytes);
    const auto born = [](const ArenaPlan& placement) {
      return std::count_if(placement.slots.begin(), placement.slots.end(),
                           [](const ArenaPlan::Slot& slot) { return slot.starts_as_identity; });
    };
    EXPECT_EQ(born(before), 1);
    EXPECT_EQ(born(after), 0);
  }
}

// Squares and diagonals leave each task one run of rows to begin and one to end.
TEST(RowEndsTest, LongJobsInPartsEndTheirRowsInTasks) {
  for (const Mask& mask : {TestMasks()[0], TestMasks()[1]}) {
    for (const int64_t length : {32768, 1 << 20}) {
      for (const int32_t world : {1, 2}) {
        const BuiltCase built({SmallSpec(8, 8, {Lengths(length, length)}, mask),
                               TestPlans(world)[0], Strategy::kRingPassKv});
        for (const RankSchedule& rank : built.ranks) {
          for (const int32_t parts : {7, 12, 400}) {
            const RankSchedule split =
                SplitSteps(rank, built.request, std::vector<int32_t>(rank.steps.size(), parts));
            EXPECT_EQ(Finishes(WithRowEnds(split, All(split))), 0)
                << length << " rows on " << world << " in " << parts << " parts";
          }
        }
      }
    }
  }
}

// A partial is unchanged if it is finished twice, sent, not wholly covered, or if its output may
// not be written yet.
class OneState : public testing::Test {
 protected:
  OneState() {
    const auto block = [](BlockKind kind) { return Block{kind, 0, 0, 10, 0, 2}; };
    schedule_.buffers = {block(BlockKind::kQ), block(BlockKind::kKv), block(BlockKind::kPartial),
                         block(BlockKind::kOut)};
    schedule_.inputs = {0, 1};
    schedule_.outputs = {3};
    schedule_.steps.resize(1);
    AddTask(0, 10);
    schedule_.steps[0].ops = {{Op::Kind::kFinish, 2, 3}};
  }
  void AddTask(int64_t begin, int64_t end, int32_t head_begin = 0, int32_t head_end = 2) {
    Task task;
    task.q = 0;
    task.kv = 1;
    task.out_q = 2;
    task.q_begin = begin;
    task.q_end = end;
    task.k_end = 10;
    task.head_begin = head_begin;
    task.head_end = head_end;
    schedule_.steps[0].tasks.push_back(task);
  }
  std::vector<Task>& tasks() { return schedule_.steps[0].tasks; }
  int64_t Left() const { return Finishes(WithRowEnds(schedule_, All(schedule_))); }

  RankSchedule schedule_;
};

TEST_F(OneState, EndsInItsTask) {
  const RankSchedule ends = WithRowEnds(schedule_, All(schedule_));
  EXPECT_TRUE(ends.steps[0].ops.empty());
  EXPECT_EQ(ends.steps[0].tasks[0].begins, (Interval{0, 10}));
  EXPECT_EQ(ends.steps[0].tasks[0].ends, (Interval{0, 10}));
  EXPECT_EQ(ends.steps[0].tasks[0].out, 3);
}

TEST_F(OneState, RowsBeginWithTheirFirstTaskAndEndWithTheirLast) {
  tasks().clear();
  AddTask(0, 6);
  AddTask(4, 10);
  AddTask(4, 6);
  const RankSchedule ends = WithRowEnds(schedule_, All(schedule_));
  EXPECT_TRUE(ends.steps[0].ops.empty());
  const std::vector<Task>& of = ends.steps[0].tasks;
  EXPECT_EQ(of[0].begins, (Interval{0, 6}));
  EXPECT_EQ(of[0].ends, (Interval{0, 4}));
  EXPECT_EQ(of[1].begins, (Interval{6, 10}));
  EXPECT_EQ(of[1].ends, (Interval{6, 10}));
  EXPECT_EQ(of[2].begins, Interval());
  EXPECT_EQ(of[2].ends, (Interval{4, 6}));
}

TEST_F(OneState, StaysWhereItsOutputMayNotBeWrittenYet) {
  std::vector<bool> may_end = All(schedule_);
  may_end[3] = false;
  EXPECT_EQ(Finishes(WithRowEnds(schedule_, may_end)), 1);
}

TEST_F(OneState, StaysWhereRowsOrHeadsAreNotCovered) {
  tasks()[0].q_end = 9;
  EXPECT_EQ(Left(), 1);
  tasks()[0].q_end = 10;
  tasks()[0].head_begin = 1;
  EXPECT_EQ(Left(), 1);
}

TEST_F(OneState, StaysWhereHeadsOverlap) {
  AddTask(0, 10, 1, 2);
  EXPECT_EQ(Left(), 1);
}

TEST_F(OneState, StaysWhereATaskMeetsTwoRunsFirst) {
  tasks().clear();
  AddTask(4, 6);
  AddTask(0, 10);
  EXPECT_EQ(Left(), 1);
}

TEST_F(OneState, StaysWhereAnythingElseTouchesIt) {
  schedule_.steps[0].sends = {{2, 0, 10, 1}};
  EXPECT_EQ(Left(), 1);
  schedule_.steps[0].sends.clear();
  schedule_.steps[0].ops.push_back({Op::Kind::kFinish, 2, 3});
  EXPECT_EQ(Left(), 2);
  schedule_.steps[0].ops = {{Op::Kind::kMerge, 2, 2}, {Op::Kind::kFinish, 2, 3}};
  EXPECT_EQ(Left(), 1);
}

TEST_F(OneState, StaysWhereATaskComesAfterItsFinish) {
  schedule_.steps.push_back(schedule_.steps[0]);
  schedule_.steps[1].ops.clear();
  EXPECT_EQ(Left(), 1);
}

}  // namespace
}  // namespace annulus
