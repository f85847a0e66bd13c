// Gradients by every strategy, layout, mask, type and number of ranks that serve them, judged by
// the reference.

#include <functional>
#include <iterator>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "attention/degrees.h"
#include "tests/executor/job_runner.h"
#include "tests/kernel/reference_kernel.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus {
namespace {

constexpr Strategy kStrategies[] = {Strategy::kRingPassKv, Strategy::kAllGatherKv,
                                    Strategy::kRotateKv,   Strategy::kHalo,
                                    Strategy::kUlysses,    Strategy::kRingPassQ};
constexpr int kStrategyCount = std::size(kStrategies);
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag, Layout::kStriped,
                               Layout::kByArea, Layout::kZigzagPerSequence};

std::unique_ptr<AttentionKernel> MakeReference() { return std::make_unique<ReferenceKernel>(); }
std::unique_ptr<AttentionKernel> MakeCpu() { return *CpuKernel::Create({}); }

AttentionSpec GradientSpec(DataType dtype, int64_t q_len, int64_t kv_len) {
  AttentionSpec spec = SmallSpec(dtype, q_len, kv_len);
  spec.operation = Operation::kGradients;
  spec.gradients.d_lse = true;
  return spec;
}

Mask Causal() {
  Mask mask;
  mask.causal = true;
  return mask;
}

// `strategy` on the ranks of the job's plan, resolved in the n-th way that there is, counted round.
void SetStrategy(Strategy strategy, JobCase* job, uint64_t n = 0) {
  Execution open;
  open.strategy = strategy;
  const std::vector<Execution> ways = ResolveDegrees(open, job->plan.world_size, job->spec.q_heads);
  job->execution = ways[n % ways.size()];
}

// Groups live on from job to job, as a worker's do. Messages are delayed at random.
Group& DelayedGroup(int32_t size) {
  static auto* groups = new std::map<int32_t, Group>;
  Group& group = (*groups)[size];
  if (group.empty()) {
    group = ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::Microseconds(300), 9); },
                           size);
  }
  return group;
}

class GradientsConformance : public testing::TestWithParam<int32_t> {
 protected:
  int32_t world() const { return GetParam(); }

  // Every strategy and layout.
  void RunEverywhere(JobCase job) {
    for (const Strategy strategy : kStrategies) {
      for (const Layout layout : kLayouts) {
        job.plan.layout = layout;
        job.plan.world_size = world();
        job.spec.gradients.d_lse = ++job.seed % 2 == 0;
        SetStrategy(strategy, &job, job.seed / 2);
        EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(world()), MakeReference));
      }
    }
  }
};

TEST_P(GradientsConformance, FullAndCausal) {
  JobCase job;
  job.spec = GradientSpec(DataType::kFp32, 37, 41);
  RunEverywhere(job);
  job.spec = GradientSpec(DataType::kFp32, 43, 29);  // Its first rows see nothing.
  job.spec.masks = {Causal()};
  RunEverywhere(job);
}

TEST_P(GradientsConformance, WindowsChunksPrefixesAndFirstKeys) {
  std::vector<Mask> masks(4, Causal());
  masks[0].window_left = 9;
  masks[0].always_visible = 2;
  masks[1].chunk = 8;
  masks[2].alignment = Mask::Alignment::kTopLeft;
  masks[2].prefix = 13;
  masks[3].causal = false;
  masks[3].window_left = 3;
  masks[3].window_right = 6;
  for (const Mask& mask : masks) {
    JobCase job;
    job.spec = GradientSpec(DataType::kFp32, 43, 47);
    job.spec.masks = {mask};
    RunEverywhere(job);
  }
}

TEST_P(GradientsConformance, MasksOfHeadsAndRangeLists) {
  JobCase job;
  job.spec = GradientSpec(DataType::kFp32, 40, 45);
  job.spec.masks.resize(2);
  job.spec.masks[0].ranges = {{0, 20, 3, 30, MaskRange::Kind::kCausal},
                              {15, 40, 10, 45, MaskRange::Kind::kInverseCausal}};
  job.spec.masks[1] = Causal();
  job.spec.masks[1].query_heads = {1, 2};
  RunEverywhere(job);
}

TEST_P(GradientsConformance, SoftCapAndAlibi) {
  JobCase job;
  job.spec = GradientSpec(DataType::kFp32, 39, 44);
  job.spec.masks = {Causal()};
  job.spec.modifiers.soft_cap = 1.2;
  job.spec.modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  RunEverywhere(job);
}

TEST_P(GradientsConformance, SixteenBits) {
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    JobCase job;
    job.spec = GradientSpec(dtype, 24, 31);
    job.spec.masks = {Causal()};
    if (dtype == DataType::kFp16) job.spec.out_dtype = DataType::kFp32;
    RunEverywhere(job);
  }
}

TEST_P(GradientsConformance, NothingToSeeOrToAsk) {
  for (const auto& [q_len, kv_len] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {0, 1}, {0, 0}, {9, 2}}) {
    JobCase job;
    job.spec = GradientSpec(DataType::kFp32, q_len, kv_len);
    job.spec.masks = {Causal()};
    RunEverywhere(job);
  }
}

TEST_P(GradientsConformance, PackedSequencesSegmentsAndSplitSteps) {
  JobCase job;
  job.spec = GradientSpec(DataType::kFp32, 17, 17);
  job.spec.sequences.resize(4);
  job.spec.sequences[1].q_len = 5;
  job.spec.sequences[1].kv_len = 22;
  job.spec.sequences[3].q_len = 13;
  job.spec.masks = {Causal()};
  job.parts = 2;
  job.segments = 3;
  RunEverywhere(job);
}

// Random jobs, odder than the ones above.
TEST_P(GradientsConformance, RandomJobs) {
  const uint64_t seed = 2000 + world();
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 25; ++i) {
    JobCase job;
    job.spec = GradientSpec(
        std::vector<DataType>{DataType::kFp32, DataType::kBf16, DataType::kFp16}[below(3)], 0, 0);
    job.spec.kv_heads = 1 + below(3);
    job.spec.q_heads = job.spec.kv_heads * (1 + below(3));
    job.spec.head_dim = 8 + below(9);
    job.spec.head_dim_v = 8 + below(9);
    job.spec.gradients.d_lse = below(2) == 0;
    job.spec.sequences.resize(1 + below(3));
    for (Sequence& sequence : job.spec.sequences) {
      sequence.q_len = below(50);
      sequence.kv_len = below(50);
    }
    if (below(3) > 0) {
      Mask mask = Causal();
      mask.causal = below(3) > 0;
      mask.alignment = static_cast<Mask::Alignment>(below(2));
      if (below(2) == 0) mask.window_left = below(20);
      if (below(3) == 0) mask.window_right = below(10);
      if (below(3) == 0) mask.always_visible = below(4);
      job.spec.masks = {mask};
    }
    job.plan.layout = kLayouts[below(5)];
    job.plan.world_size = world();
    SetStrategy(kStrategies[below(kStrategyCount)], &job, random());
    const bool cuts_sequences =
        job.plan.layout == Layout::kZigzagPerSequence || job.plan.layout == Layout::kByArea;
    job.plan.granule = cuts_sequences ? 1 : 1 + below(3);
    job.plan.stripe = job.plan.granule * (1 + below(3));
    job.parts = 1 + below(3);
    job.segments = 1 + below(4);
    job.seed = seed * 100 + i;
    EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(world()), MakeReference));
  }
}

TEST_P(GradientsConformance, WithTheCpuKernel) {
  for (int i = 0; i < kStrategyCount; ++i) {
    JobCase job;
    job.spec = GradientSpec(i % 2 == 0 ? DataType::kFp32 : DataType::kBf16, 150, 170);
    job.spec.head_dim = 64;
    job.spec.head_dim_v = 48;
    job.spec.masks = {Causal()};
    if (i == 1) job.spec.masks[0].window_left = 70;
    if (i == 2) job.spec.masks[0].always_visible = 5;
    job.plan.world_size = world();
    SetStrategy(kStrategies[i], &job);
    job.plan.layout = kLayouts[(i + world()) % 5];
    EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(world()), MakeCpu));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GradientsConformance, testing::Values(1, 2, 3, 4, 5, 8),
                         [](const auto& info) { return absl::StrCat("W", info.param); });

TEST(GradientsOverGloo, ASampleOfJobs) {
  Group group = ConnectedGroup(GlooGroup, 3);
  ASSERT_FALSE(group.empty());
  for (const Strategy strategy : kStrategies) {
    JobCase job;
    job.spec = GradientSpec(DataType::kBf16, 121, 127);
    job.spec.head_dim = 64;
    job.spec.head_dim_v = 64;
    job.spec.masks = {Causal()};
    job.plan.layout = Layout::kZigzag;
    job.plan.world_size = 3;
    SetStrategy(strategy, &job);
    job.segments = 2;
    EXPECT_TRUE(JobRunner(job).RunAndJudge(group, MakeCpu));
  }
}

}  // namespace
}  // namespace annulus
