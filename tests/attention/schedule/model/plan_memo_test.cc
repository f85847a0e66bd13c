#include "attention/schedule/model/plan_memo.h"

#include <random>

#include "attention/mask/mask.h"
#include "attention/planning/cost_model.h"
#include "attention/schedule/schedule.h"
#include "attention/spec/parallel_degrees.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// Four heads with separate range lists, and a sequence of one key.
AttentionSpec Ranged(Operation operation) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 16;
  spec.sequences = {{300, 400, "", 0, 0}, {5, 1, "", 0, 0}};
  spec.operation = operation;
  std::mt19937 random(1);
  for (int32_t head = 0; head < 4; ++head) {
    Mask mask;
    mask.query_heads = {head};
    for (int64_t row = 0; row < 300; row += 4) {
      const int64_t key = random() % 350;
      mask.ranges.push_back({row, row + 9, key, key + 1 + static_cast<int64_t>(random() % 50),
                             static_cast<MaskRange::Kind>(random() % 4)});
    }
    spec.masks.push_back(mask);
  }
  return spec;
}

// Entries that other strategies on the same plan have added do not change the cost.
TEST(PlanMemoTest, EveryStrategyCostsWhatItCostsAlone) {
  for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
    const AttentionSpec spec = Ranged(operation);
    const MaskMap mask(spec);
    for (const Layout layout : {Layout::kZigzag, Layout::kByArea, Layout::kStriped}) {
      PlanOptions options;
      options.world_size = 4;
      options.layout = layout;
      options.stripe = 7;
      const auto plan = MakeShardPlan(spec, options);
      PlanMemo memo({&spec, &mask, &*plan, {}});
      for (int pass = 0; pass < 2; ++pass) {
        for (const Strategy strategy :
             {Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv, Strategy::kHalo,
              Strategy::kRingPassQ, Strategy::kUlysses, Strategy::kUlyssesRing, Strategy::kTree}) {
          Execution open;
          open.strategy = strategy;
          for (const Execution& execution : ResolveDegrees(open, 4, spec.q_heads)) {
            const ScheduleRequest alone{&spec, &mask, &*plan, execution};
            const Cost want = *PredictCost(alone, Rates{});
            const Cost got = *PredictCost({&spec, &mask, &*plan, execution, &memo}, Rates{});
            EXPECT_EQ(got.seconds, want.seconds) << StrategyName(strategy);
            EXPECT_EQ(got.visible_pairs, want.visible_pairs) << StrategyName(strategy);
            EXPECT_EQ(got.bytes_sent, want.bytes_sent) << StrategyName(strategy);
            EXPECT_EQ(got.peak_bytes_per_rank, want.peak_bytes_per_rank) << StrategyName(strategy);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace annulus
