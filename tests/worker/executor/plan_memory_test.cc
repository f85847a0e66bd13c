// The peak of a plan is what its ranks use, by brute force at every length.

#include "absl/strings/str_cat.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/kernel/reference_kernel.h"

namespace annulus {
namespace {

class PlanMemory : public testing::TestWithParam<int32_t> {};

// Answers of so few rows are checked elsewhere.
TEST_P(PlanMemory, IsWhatEveryLengthStrategyAndLayoutUses) {
  Group group = ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); },
                               GetParam());
  ASSERT_FALSE(group.empty());
  std::vector<Mask> masks(3);
  masks[1].causal = masks[2].causal = true;
  masks[2].window_left = 5;
  masks[2].always_visible = 2;
  for (int64_t length = 0; length <= 64; ++length) {
    JobCase job;
    job.spec = SmallSpec(DataType::kFp32, length, length + length % 4);
    job.spec.q_heads = job.spec.kv_heads = 1;
    job.spec.head_dim = job.spec.head_dim_v = 2;
    job.spec.masks = {masks[length % 3]};
    job.plan.world_size = GetParam();
    job.parts = 1 + static_cast<int32_t>(length % 2);
    for (const Strategy strategy :
         {Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv, Strategy::kHalo}) {
      for (const Layout layout :
           {Layout::kContiguous, Layout::kZigzag, Layout::kStriped, Layout::kZigzagPerSequence}) {
        job.execution.strategy = strategy;
        job.plan.layout = layout;
        ASSERT_TRUE(JobRunner(job).Run(group, [] { return std::make_unique<ReferenceKernel>(); }));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlanMemory, testing::Range(1, 9),
                         [](const auto& info) { return absl::StrCat("W", info.param); });

}  // namespace
}  // namespace annulus
