// The same jobs by every strategy, layout, mask, type and number of ranks, judged by the reference.

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

constexpr Strategy kStrategies[] = {
    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,
    Strategy::kHalo,       Strategy::kUlysses,     Strategy::kUlyssesRing,
    Strategy::kRingPassQ,  Strategy::kDoubleRing,  Strategy::kTree};
constexpr int kStrategyCount = std::size(kStrategies);
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag, Layout::kStriped,
                               Layout::kZigzagPerSequence, Layout::kByArea};
constexpr int kLayoutCount = std::size(kLayouts);
bool CutsAtEnds(Layout layout) {
  return layout == Layout::kZigzagPerSequence || layout == Layout::kByArea;
}

std::unique_ptr<AttentionKernel> MakeReference() { return std::make_unique<ReferenceKernel>(); }
std::unique_ptr<AttentionKernel> MakeCpu() { return *CpuKernel::Create({}); }

Mask Causal(Mask::Alignment alignment) {
  Mask mask;
  mask.causal = true;
  mask.alignment = alignment;
  return mask;
}

// `strategy` on the ranks of the job's plan, resolved in the n-th way that there is, counted round.
void SetStrategy(Strategy strategy, int64_t n, JobCase* job) {
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
    group = ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::Microseconds(300), 7); },
                           size);
  }
  return group;
}

class ExecutorConformance : public testing::TestWithParam<int32_t> {
 protected:
  int32_t world() const { return GetParam(); }

  void Run(const JobCase& job) {
    EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(world()), MakeReference));
  }

  // Every strategy and layout.
  void RunEverywhere(JobCase job) {
    for (const Strategy strategy : kStrategies) {
      for (const Layout layout : kLayouts) {
        job.plan.layout = layout;
        job.plan.world_size = world();
        SetStrategy(strategy, static_cast<int64_t>(++job.seed), &job);
        Run(job);
      }
    }
  }
};

TEST_P(ExecutorConformance, Full) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 37, 41);
  RunEverywhere(job);
}

TEST_P(ExecutorConformance, CausalBothAlignments) {
  for (const auto alignment : {Mask::Alignment::kBottomRight, Mask::Alignment::kTopLeft}) {
    JobCase job;
    job.spec = SmallSpec(DataType::kFp32, 43, 29);
    job.spec.masks = {Causal(alignment)};
    RunEverywhere(job);
  }
}

Mask AnyMask(const std::function<int64_t(int64_t)>& below) {
  Mask mask = Causal(static_cast<Mask::Alignment>(below(2)));
  mask.causal = below(3) > 0;
  if (below(2) == 0) mask.window_left = below(20);
  if (below(3) == 0) mask.window_right = below(10);
  if (below(3) == 0) mask.chunk = 1 + below(15);
  if (below(3) == 0) mask.prefix = below(12);
  if (below(3) == 0) mask.always_visible = below(4);
  for (int64_t n = below(3) == 0 ? 1 + below(4) : 0; n > 0; --n) {
    const int64_t q = below(40), k = below(40);
    mask.ranges.push_back(
        {q, q + 1 + below(40), k, k + 1 + below(40), static_cast<MaskRange::Kind>(below(4))});
  }
  return mask;
}

// Masks for some sequences and some heads.
void VaryMasks(const std::function<int64_t(int64_t)>& below, AttentionSpec* spec) {
  if (below(2) == 0) {
    spec->masks.push_back(AnyMask(below));
    for (Sequence& sequence : spec->sequences) sequence.mask = static_cast<int32_t>(below(2));
  }
  for (int64_t n = below(3); n > 0; --n) {
    Mask mask = AnyMask(below);
    for (int32_t head = n == 1; head < spec->q_heads; head += 2) {
      if (below(3) > 0) mask.query_heads.push_back(head);
    }
    if (mask.query_heads.empty()) return;
    spec->masks.push_back(mask);
  }
}

// By halo too: each rank then needs a few rows of its neighbours.
TEST_P(ExecutorConformance, WindowsChunksPrefixesAndFirstKeys) {
  std::vector<Mask> masks(4, Causal(Mask::Alignment::kBottomRight));
  masks[0].window_left = 9;
  masks[0].always_visible = 2;
  masks[1].chunk = 8;
  masks[2].prefix = 13;
  masks[3].causal = false;
  masks[3].window_left = 3;
  masks[3].window_right = 6;
  for (const Mask& mask : masks) {
    JobCase job;
    job.spec = SmallSpec(DataType::kFp32, 43, 47);
    job.spec.masks = {mask};
    RunEverywhere(job);
  }
}

// Positions are global in every layout, and a sink counts once whoever ends a row.
TEST_P(ExecutorConformance, SoftCapAlibiAndSinks) {
  for (int which = 1; which < 8; ++which) {
    JobCase job;
    job.spec = SmallSpec(DataType::kFp32, 43, 29);
    job.spec.sequences.push_back(job.spec.sequences[0]);
    job.spec.sequences[1].q_len = 11;
    if (which % 3 > 0) job.spec.masks = {Causal(static_cast<Mask::Alignment>(which % 2))};
    if ((which & 1) != 0) job.spec.modifiers.soft_cap = 1.5;
    if ((which & 2) != 0) job.spec.modifiers.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.0625f};
    if ((which & 4) != 0) job.spec.modifiers.sinks = {-1.0f, 0.5f, 2.0f, 4.0f};
    RunEverywhere(job);
  }
}

TEST_P(ExecutorConformance, DropoutAndFurtherOutputs) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 43, 29);
  job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
  job.spec.dropout = Dropout{0.25, 11};
  job.spec.outputs.lse_base = LseBase::k2;
  job.spec.outputs.max_logit = true;
  RunEverywhere(job);
}

// They go where queries go, whole or head by head.
TEST_P(ExecutorConformance, BiasAndBitMask) {
  for (int which = 1; which < 4; ++which) {
    JobCase job;
    job.spec = SmallSpec(which == 2 ? DataType::kBf16 : DataType::kFp32, 43, 29);
    job.spec.sequences.push_back(job.spec.sequences[0]);
    job.spec.sequences[1].kv_len = 40;
    job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
    if ((which & 1) != 0) job.spec.modifiers.bias = Bias{DataType::kFp16, which == 1 ? 1 : 4};
    job.spec.masks[0].bit_mask = (which & 2) != 0;
    if (which == 2) job.spec.bit_mask_heads = 4;
    job.parts = which;
    RunEverywhere(job);
  }
}

TEST_P(ExecutorConformance, SixteenBits) {
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    JobCase job;
    job.spec = SmallSpec(dtype, 24, 31);
    job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
    RunEverywhere(job);
  }
}

// Heads that the ranks do not divide, fewer key/value heads than ranks, and every way to share them
// out.
TEST_P(ExecutorConformance, HeadsOfAnyNumber) {
  constexpr int32_t kHeads[][2] = {{6, 3}, {2, 1}, {8, 1}, {5, 5}, {7, 7}, {12, 4}};
  JobCase job;
  job.plan.world_size = world();
  for (const auto& heads : kHeads) {
    for (const Strategy strategy : {Strategy::kUlysses, Strategy::kUlyssesRing}) {
      Execution open;
      open.strategy = strategy;
      for (const Execution& execution : ResolveDegrees(open, world(), heads[0])) {
        job.spec = SmallSpec(job.seed % 2 == 0 ? DataType::kFp32 : DataType::kBf16, 21, 26);
        job.spec.q_heads = heads[0];
        job.spec.kv_heads = heads[1];
        job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
        job.plan.layout = kLayouts[job.seed % kLayoutCount];
        job.execution = execution;
        job.parts = 1 + job.seed % 2;
        ++job.seed;
        Run(job);
      }
    }
  }
}

TEST_P(ExecutorConformance, NothingToSeeOrToAsk) {
  for (const auto& [q_len, kv_len] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {0, 1}, {0, 0}, {1, 1}, {9, 2}}) {
    JobCase job;
    job.spec = SmallSpec(DataType::kFp32, q_len, kv_len);
    job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
    RunEverywhere(job);
  }
}

TEST_P(ExecutorConformance, PackedSequencesSegmentsAndSplitSteps) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 17, 17);
  job.spec.sequences.resize(4);
  job.spec.sequences[1].q_len = 5;
  job.spec.sequences[1].kv_len = 22;
  job.spec.sequences[3].q_len = 13;
  job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
  job.parts = 2;
  job.segments = 3;
  RunEverywhere(job);
}

// A mask for each sequence, one for some heads (of one group too), and range lists.
TEST_P(ExecutorConformance, MasksOfSequencesAndHeads) {
  using Kind = MaskRange::Kind;
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 41, 41);
  job.spec.sequences.resize(3, job.spec.sequences[0]);
  Mask window = Causal(Mask::Alignment::kBottomRight), ranges, odd;
  window.window_left = 6;
  ranges.ranges = {{0, 20, 2, 25, Kind::kCausal},
                   {10, 41, 5, 30, Kind::kInverseCausal},
                   {15, 41, 30, 41, Kind::kBiCausal},
                   {0, 5, 30, 35, Kind::kFull}};
  odd.chunk = 9;
  odd.query_heads = {1, 3};
  job.spec.masks = {Causal(Mask::Alignment::kBottomRight), odd, window, ranges, odd};
  job.spec.sequences[1].mask = 2;
  job.spec.sequences[2].mask = 3;
  RunEverywhere(job);
}

// Random jobs, odder than the ones above. (With few rows and dimensions the naive error, which is
// the yardstick, may be small by luck.)
TEST_P(ExecutorConformance, RandomJobs) {
  const uint64_t seed = 1000 + world();
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 40; ++i) {
    JobCase job;
    job.spec = SmallSpec(
        std::vector<DataType>{DataType::kFp32, DataType::kBf16, DataType::kFp16}[below(3)], 0, 0);
    job.spec.kv_heads = 1 + below(i % 4 == 0 ? 8 : 3);
    job.spec.q_heads = job.spec.kv_heads * (1 + below(3));
    job.spec.head_dim = 1 + below(16);
    job.spec.head_dim_v = 8 + below(9);
    job.spec.sequences.resize(1 + below(3));
    for (Sequence& sequence : job.spec.sequences) {
      sequence.q_len = below(50);
      sequence.kv_len = below(50);
    }
    if (below(3) > 0) {
      job.spec.masks = {AnyMask(below)};
      VaryMasks(below, &job.spec);
    }
    job.plan.layout = kLayouts[below(kLayoutCount)];
    job.plan.world_size = world();
    SetStrategy(kStrategies[below(kStrategyCount)], below(64), &job);
    job.plan.granule = CutsAtEnds(job.plan.layout) ? 1 : 1 + below(3);
    job.plan.stripe = job.plan.granule * (1 + below(3));
    job.parts = 1 + below(3);
    job.segments = 1 + below(4);
    job.seed = seed * 100 + i;
    Run(job);
  }
}

// The kernel of a worker, at a size at which the yardstick of the budget is steady.
TEST_P(ExecutorConformance, WithTheCpuKernel) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 160, 200);
  job.spec.head_dim = 128;
  job.spec.head_dim_v = 96;
  job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
  job.plan.world_size = world();
  for (int i = 0; i < kStrategyCount; ++i) {
    if (i == 1) job.spec.masks[0].window_left = 70;
    if (i == 2) job.spec.masks[0].always_visible = 5;
    if (i == 3) job.spec.modifiers.soft_cap = 2;
    constexpr int32_t kHeads[][2] = {{4, 2}, {6, 3}, {5, 5}, {2, 1}};
    job.spec.q_heads = kHeads[(i + world() / 4) % 4][0];
    job.spec.kv_heads = kHeads[(i + world() / 4) % 4][1];
    if (i >= 4) job.spec.modifiers.sinks.assign(job.spec.q_heads, 0.5f);
    if (i >= 5) job.spec.modifiers.alibi_slopes.assign(job.spec.q_heads, 0.1f);
    job.spec.modifiers.bias.reset();
    if (i % 2 == 1) job.spec.modifiers.bias = Bias{{}, i % 4 == 1 ? 1 : job.spec.q_heads};
    SetStrategy(kStrategies[i], world(), &job);
    job.plan.layout = kLayouts[(i + world()) % kLayoutCount];
    EXPECT_TRUE(JobRunner(job).RunAndJudge(DelayedGroup(world()), MakeCpu));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorConformance, testing::Range(1, 9),
                         [](const auto& info) { return absl::StrCat("W", info.param); });

TEST(ExecutorOverGloo, ASampleOfJobs) {
  for (const int32_t world : {2, 3, 5}) {
    Group group = ConnectedGroup(GlooGroup, world);
    ASSERT_FALSE(group.empty());
    for (const Strategy strategy : kStrategies) {
      JobCase job;
      job.spec = SmallSpec(DataType::kBf16, 161, 167);
      job.spec.head_dim = 64;
      job.spec.head_dim_v = 64;
      job.spec.masks = {Causal(Mask::Alignment::kBottomRight)};
      job.plan.layout = Layout::kZigzag;
      job.plan.world_size = world;
      SetStrategy(strategy, 1, &job);
      job.segments = 2;
      EXPECT_TRUE(JobRunner(job).RunAndJudge(group, MakeCpu));
    }
  }
}

}  // namespace
}  // namespace annulus
