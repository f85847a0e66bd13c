#include "worker/kernel/cpu/gradient_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "attention/mask/mask.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/visible_blocks.h"

namespace annulus {
namespace {

// The value for jobs that need not be deterministic.
constexpr int64_t kStripeSlots = 4 * kTileRows;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tasks of one sequence, whose blocks only serve to distinguish them.
struct Call {
  Call(int32_t q_heads, int32_t kv_heads, int64_t rows, std::vector<Mask> masks) {
    spec.dtype = DataType::kFp32;
    spec.q_heads = q_heads;
    spec.kv_heads = kv_heads;
    spec.head_dim = 1;
    Sequence sequence;
    sequence.q_len = sequence.kv_len = rows;
    spec.sequences = {sequence};
    spec.masks = std::move(masks);
    mask = std::make_unique<MaskMap>(spec);
    all = RowMap({RowRange{0, rows, rows, 1}});
  }

  void Add(Interval q, Interval k, int32_t head_begin, int32_t head_end) {
    KernelTask bound;
    bound.task.q_begin = q.begin;
    bound.task.q_end = q.end;
    bound.task.k_begin = k.begin;
    bound.task.k_end = k.end;
    bound.task.head_begin = head_begin;
    bound.task.head_end = head_end;
    bound.task.coverage =
        mask->Classify(head_begin, q, k) == Coverage::kFull && mask->classes() == 1
            ? Coverage::kFull
            : Coverage::kPartial;
    bound.out_q.data = &bytes[0];
    bound.out_kv.data = &bytes[1];
    bound.q_rows = bound.k_rows = &all;
    tasks.push_back(bound);
  }

  AttentionSpec spec;
  std::unique_ptr<MaskMap> mask;
  RowMap all;
  std::vector<KernelTask> tasks;
  std::byte bytes[2] = {};
};

Mask Window(int64_t left, int64_t right) {
  Mask mask;
  mask.window_left = left;
  mask.window_right = right;
  return mask;
}

bool Sees(const Call& call, const GradientRounds& shape, const CallVisibility& visible,
          const GradientItem& item) {
  const Task& task = call.tasks[item.task].task;
  const Interval keys{item.key_block * kKeyBlock, (item.key_block + 1) * kKeyBlock};
  const int64_t end =
      std::min(task.q_end, CeilDiv((item.stripe + 1) * shape.stripe_slots, shape.group));
  for (int32_t head = std::max(item.kv_head * shape.group, task.head_begin);
       head < std::min((item.kv_head + 1) * shape.group, task.head_end); ++head) {
    for (int64_t row = std::max(task.q_begin, item.stripe * shape.stripe_slots / shape.group);
         row < end; ++row) {
      for (const Interval& span : visible.Of(item.task, head, row))
        if (Intersect(span, keys).length() > 0) return true;
    }
  }
  return false;
}

// Items in the order in which each accumulator's rows meet them, by (queries or keys, head, stripe
// or block).
using Cell = std::tuple<int32_t, int64_t, int64_t>;  // task, block, stripe
using Orders = std::map<std::tuple<bool, int32_t, int64_t>, std::vector<Cell>>;
void Meet(const GradientItem& item, Orders* orders) {
  const Cell cell{item.task, item.key_block, item.stripe};
  (*orders)[{true, item.kv_head, item.stripe}].push_back(cell);
  (*orders)[{false, item.kv_head, item.key_block}].push_back(cell);
}

// The plan's rule, applied to every cell.
Orders ByRule(const Call& call, const GradientRounds& shape, const CallVisibility& visible) {
  Orders orders;
  for (size_t t = 0; t < call.tasks.size(); ++t) {
    const Task& task = call.tasks[t].task;
    const int64_t block = task.k_begin / kKeyBlock, blocks = CeilDiv(task.k_end, kKeyBlock) - block;
    const int64_t stripe = task.q_begin * shape.group / shape.stripe_slots;
    const int64_t stripes = CeilDiv(task.q_end * shape.group, shape.stripe_slots) - stripe;
    const auto add = [&](int64_t b, int64_t s) {
      for (int32_t head = task.head_begin / shape.group; head * shape.group < task.head_end;
           ++head) {
        const GradientItem item{static_cast<int32_t>(t), head, block + b, stripe + s};
        if (Sees(call, shape, visible, item)) Meet(item, &orders);
      }
    };
    const int64_t longer = std::max(blocks, stripes), shorter = std::min(blocks, stripes);
    for (int64_t i = 0; i < (shape.in_order ? blocks : longer); ++i) {
      for (int64_t j = 0; j < (shape.in_order ? stripes : shorter); ++j) {
        if (shape.in_order) {
          add(i, j);
        } else if (blocks >= stripes) {
          add((i + j) % longer, j);
        } else {
          add(j, (i + j) % longer);
        }
      }
    }
  }
  return orders;
}

class GradientPlanTest : public testing::Test {
 protected:
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(1);
  KernelControl control_;
};

TEST_F(GradientPlanTest, RowsMeetTheItemsOfTheRuleInItsOrder) {
  std::mt19937_64 random(20);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % (most - least + 1));
  };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const int32_t group = static_cast<int32_t>(draw(1, 3)), kv_heads = 2;
    const int64_t rows = draw(1, 6000);
    std::vector<Mask> masks = {Window(draw(0, 900), draw(0, 900))};
    if (round % 3 == 0) masks[0].always_visible = draw(1, 300);
    if (round % 2 == 0) {  // Another class of heads.
      masks[0].query_heads = {0};
      masks.push_back(Window(draw(0, 90), 0));
      for (int32_t head = 1; head < group * kv_heads; ++head) masks[1].query_heads.push_back(head);
    }
    if (round % 7 == 0) masks.clear();
    Call call(group * kv_heads, kv_heads, rows, masks);
    for (int task = 0; task < 3; ++task) {
      const int64_t q = draw(0, rows - 1), k = draw(0, rows - 1);
      call.Add({q, draw(q + 1, rows)}, {k, draw(k + 1, rows)}, task == 1 ? 1 : 0, group * kv_heads);
    }
    const CallVisibility visible(*call.mask, call.tasks, *pool_);
    for (const GradientRounds& shape :
         {GradientRounds{group, kStripeSlots, false}, GradientRounds{group, kTileRows, false},
          GradientRounds{group, 256 * group, true}}) {
      Orders orders;
      ForEachRound(call.tasks, visible, shape, control_, [&](absl::Span<const GradientItem> items) {
        for (const GradientItem& item : items) Meet(item, &orders);
        return true;
      });
      EXPECT_EQ(orders, ByRule(call, shape, visible));
    }
  }
}

TEST_F(GradientPlanTest, StripesAreAsLongAsKeepsThreadsBusy) {
  struct Case {
    int32_t q_heads, kv_heads;
    int64_t rows;
    int threads;
    int64_t tiles;
  };
  // Three stripes of each head; eight items are wanted.
  for (const Case& c :
       {Case{4, 4, 4096, 2, 16}, Case{4, 4, 4096, 3, 16}, Case{4, 4, 4096, 4, 8},
        Case{4, 4, 4096, 7, 4}, Case{8, 2, 4096, 2, 16},  // Slots of a group make more stripes.
        Case{1, 1, 4096, 1, 8},    // Six stripes; sixteen tiles would make three.
        Case{1, 1, 4096, 2, 4},    // There are no shorter stripes.
        Case{1, 1, 65536, 2, 16},  //
        Case{64, 64, 200, 8, 16},  // The heads alone are enough.
        Case{1, 1, 1, 64, 4}}) {
    SCOPED_TRACE(testing::Message() << c.q_heads << " heads, " << c.rows << " rows, " << c.threads);
    Call call(c.q_heads, c.kv_heads, c.rows, {});
    call.Add({0, c.rows}, {0, c.rows}, 0, c.q_heads);
    call.Add({0, 1}, {0, 1}, 0, c.q_heads);  // The largest task counts.
    const BlockLayout layout(call.spec);
    KernelJob job;
    job.spec = &call.spec;
    job.layout = &layout;
    const GradientRounds rounds = RoundsOf(job, call.tasks, c.threads);
    EXPECT_EQ(rounds.stripe_slots, c.tiles * kTileRows);
    EXPECT_FALSE(rounds.in_order);
    call.spec.deterministic = true;
    const GradientRounds ordered = RoundsOf(job, call.tasks, c.threads);
    EXPECT_EQ(ordered.stripe_slots, 256 * c.q_heads / c.kv_heads);
    EXPECT_TRUE(ordered.in_order);
  }
}

TEST_F(GradientPlanTest, NarrowWindowsOverManyRowsArePlannedByOneLookAtEachRow) {
  constexpr int64_t kRows = 1 << 20, kStripes = kRows / kStripeSlots + 1;
  Call call(1, 1, kRows, {Window(127, 0)});
  call.Add({0, kRows}, {0, kRows}, 0, 1);
  const CallVisibility visible(*call.mask, call.tasks, *pool_);
  std::atomic<int64_t> progress{0};
  control_.progress = &progress;
  int64_t items = 0;
  ForEachRound(call.tasks, visible, {1, kStripeSlots, false}, control_,
               [&](absl::Span<const GradientItem> round) {
                 items += static_cast<int64_t>(round.size());
                 return true;
               });
  // A stripe's rows and the 127 keys before them are in two or three blocks.
  EXPECT_GE(items, 2 * kStripes - 2);
  EXPECT_LE(items, 3 * kStripes);
  EXPECT_EQ(progress.load(), kStripes);
  int64_t looks = 0;
  const std::vector<Interval> stripes(4, {0, 1000});
  const VisibleBlocks seen(stripes,
                           [&](int64_t row) {
                             ++looks;
                             return visible.Of(0, 0, row);
                           },
                           {});
  EXPECT_EQ(looks, 4000);
}

TEST_F(GradientPlanTest, APlanThatIsToldToStopLooksNoFurtherAndRunsNothing) {
  Call call(1, 1, 5000, {Window(127, 0)});
  call.Add({0, 5000}, {0, 5000}, 0, 1);
  const CallVisibility visible(*call.mask, call.tasks, *pool_);
  std::atomic<bool> stop{false};
  control_.stop = &stop;
  int64_t looks = 0;
  const std::vector<Interval> stripes = {{0, 10}, {10, 20}, {20, 30}};
  const VisibleBlocks seen(
      stripes,
      [&](int64_t row) {
        ++looks;
        if (row == 11) stop = true;
        return visible.Of(0, 0, row);
      },
      control_);
  EXPECT_EQ(looks, 20);  // The stripe's own rows, and no others.
  looks = 0;
  const VisibleBlocks none(
      stripes,
      [&](int64_t row) {
        ++looks;
        return visible.Of(0, 0, row);
      },
      control_);
  EXPECT_EQ(looks, 0);
  EXPECT_TRUE(none.Of(2).empty());
  ForEachRound(call.tasks, visible, {1, kStripeSlots, false}, control_,
               [&](absl::Span<const GradientItem>) {
                 ADD_FAILURE() << "items of a plan that was told to stop";
                 return true;
               });
}

}  // namespace
}  // namespace annulus
