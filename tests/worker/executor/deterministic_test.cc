// spec.deterministic: the same bits for any number of ranks, layout, strategy, number of threads
// and split into segments, with the kernels of this CPU.

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/seed.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/executor/same_bits.h"
#include "tests/worker/kernel/amx_or_emulation.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

constexpr Strategy kStrategies[] = {
    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,  Strategy::kHalo,
    Strategy::kUlysses,    Strategy::kUlyssesRing, Strategy::kDoubleRing};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag, Layout::kStriped,
                               Layout::kZigzagPerSequence, Layout::kByArea};

using Inputs = std::shared_ptr<const JobInputs>;
Bits BitsOfRun(const JobCase& job, const Inputs& inputs, const std::string& path, int threads) {
  const auto make = [&] {
    CpuKernel::Options options;
    options.path = path;
    if (path == "amx") options.isa = AmxOrEmulation();
    options.threads = threads;
    options.pack_bytes = threads == 2 ? 1 << 20 : 64 << 20;
    return std::unique_ptr<AttentionKernel>(*CpuKernel::Create(options));
  };
  JobRunner runner(job, inputs);
  EXPECT_TRUE(runner.Run(DelayedGroup(job.plan.world_size), make)) << Describe(job);
  return BitsOf(job.spec, runner);
}

// The number of runs that differ from W = 1 on one thread: every `every`-th plan, and once each
// strategy on several ranks. Splits and degrees are drawn.
int64_t Differing(JobCase job, const std::string& path, int64_t every = 1,
                  absl::Span<const Strategy> strategies = kStrategies) {
  SetFoldingPlan(1, Layout::kContiguous, Strategy::kRingPassKv, 0, &job);
  job.parts = job.segments = 1;
  const Inputs inputs = MakeInputs(job.spec, job.seed);
  const Bits expected = BitsOfRun(job, inputs, path, 1);
  std::mt19937 draw(static_cast<uint32_t>(job.seed));
  std::set<Strategy> allowed, ran;
  int64_t differing = 0, n = -1;
  for (const int32_t world : {1, 2, 3, 4}) {
    for (const Layout layout : kLayouts) {
      for (const Strategy strategy : strategies) {
        const bool chosen = ++n % every == static_cast<int64_t>(job.seed) % every;
        if (!SetFoldingPlan(world, layout, strategy, draw(), &job)) continue;
        if (world > 1) allowed.insert(strategy);
        const bool first = world > 1 && ran.count(strategy) == 0 &&
                           layout == kLayouts[(n + job.seed) % std::size(kLayouts)];
        if (!chosen && !first) continue;
        if (world > 1) ran.insert(strategy);
        job.parts = static_cast<int32_t>(1 + draw() % 3);
        job.segments = static_cast<int32_t>(1 + draw() % 2);
        const int threads = static_cast<int>(1 + draw() % 3);
        if (Same(BitsOfRun(job, inputs, path, threads), expected)) continue;
        if (++differing == 1 && job.spec.deterministic) ADD_FAILURE() << path << Describe(job);
      }
    }
  }
  EXPECT_TRUE(ran == allowed) << path << Describe(job) << ": " << ran.size() << " of "
                              << allowed.size() << " strategies";
  return differing;
}

JobCase Job(DataType dtype) {
  JobCase job;
  job.spec = SmallSpec(dtype, 333, 1100);
  job.spec.sequences.resize(3);
  job.spec.sequences[1].q_len = 270;
  job.spec.sequences[1].kv_len = 270;
  job.spec.sequences[2].q_len = 40;
  job.spec.sequences[2].kv_len = 701;
  job.spec.head_dim = 40;
  job.spec.head_dim_v = 24;
  job.spec.deterministic = true;
  return job;
}

Mask Causal() {
  Mask mask;
  mask.causal = true;
  return mask;
}

JobCase GradientJob(DataType dtype) {
  JobCase job = Job(dtype);
  job.spec.sequences.resize(2);
  job.spec.sequences[0].q_len = 600;
  job.spec.sequences[0].kv_len = 700;
  job.spec.head_dim = 9;
  job.spec.head_dim_v = 7;
  job.spec.operation = Operation::kGradients;
  job.spec.gradients.d_lse = true;
  job.spec.masks = {Causal()};
  return job;
}

std::vector<std::string> Paths() {
  std::vector<std::string> paths;
  for (const TileIsa* isa : AvailableIsas()) paths.emplace_back(isa->name);
  return paths;
}

TEST(DeterministicTest, EveryPathOnEveryPlan) {
  uint64_t seed = 0;
  for (const std::string& path : Paths()) {
    if (path == "portable") continue;  // Slow; tested below with fewer plans.
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
      JobCase job = Job(dtype);
      job.spec.masks = {Causal()};
      job.seed = ++seed;
      EXPECT_EQ(Differing(job, path, path == "avx512" || path == "avx2" ? 4 : 2), 0);
    }
  }
}

// Few plans, because tiles may be emulated.
TEST(DeterministicTest, TheAmxPath) {
  if (AmxOrEmulation() == nullptr) GTEST_SKIP() << "no AMX here, and nothing to emulate it by";
  const int64_t every = SelectIsa("amx").ok() ? 4 : 13;
  JobCase job = Job(DataType::kBf16);
  job.spec.sequences.resize(2);
  job.spec.masks = {Causal()};
  EXPECT_EQ(Differing(job, "amx", every), 0);
  job.spec.dtype = DataType::kFp16;
  job.seed = 2;
  EXPECT_EQ(Differing(job, "amx", every), 0);
  job.spec.dtype = DataType::kFp32;
  job.spec.arithmetic = Arithmetic::kBf16x3;
  job.seed = 3;
  EXPECT_EQ(Differing(job, "amx", every), 0);
  job = GradientJob(DataType::kBf16);
  job.seed = 4;
  EXPECT_EQ(Differing(job, "amx", every), 0);
  job.spec.deterministic = false;
  EXPECT_GT(Differing(job, "amx", every), 1);
}

TEST(DeterministicTest, ThePortablePath) {
  JobCase job = Job(DataType::kFp32);
  job.spec.masks = {Causal()};
  job.spec.head_dim = job.spec.head_dim_v = 4;
  EXPECT_EQ(Differing(job, "portable", 4), 0);
}

// Two intervals a row, some in one tile; masks of heads; modifiers; dropout; further outputs.
TEST(DeterministicTest, MasksAndModifiers) {
  JobCase job = Job(DataType::kFp32);
  Mask window = Causal(), odd;
  window.window_left = 100;
  window.always_visible = 7;
  odd.chunk = 190;
  odd.query_heads = {1, 3};
  job.spec.masks = {window, odd};
  job.spec.modifiers.soft_cap = 3;
  job.spec.modifiers.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.0625f};
  EXPECT_EQ(Differing(job, "auto", 2), 0);
  job.spec.masks = {Mask()};
  job.spec.modifiers.sinks = {-1.0f, 0.5f, 2.0f, 4.0f};
  job.spec.dropout = Dropout{0.25, 11};
  job.spec.outputs.max_logit = true;
  job.spec.outputs.lse_base = LseBase::k2;
  job.spec.out_dtype = DataType::kFp32;
  EXPECT_EQ(Differing(job, "auto", 2), 0);
}

TEST(DeterministicTest, BiasAndBitMask) {
  JobCase job = Job(DataType::kFp32);
  job.spec.masks = {Causal()};
  job.spec.masks[0].bit_mask = true;
  job.spec.modifiers.bias = Bias{DataType::kBf16, 4};
  EXPECT_EQ(Differing(job, "auto", 3), 0);
}

TEST(DeterministicTest, GradientsByEveryPath) {
  uint64_t seed = 0;
  for (const std::string& path : Paths()) {
    // Otherwise the products are fp32's.
    const bool of_bf16 = path == "amx" || path == "avx512bf16";
    JobCase job = GradientJob(of_bf16 || seed % 2 == 1 ? DataType::kBf16 : DataType::kFp32);
    job.seed = ++seed;
    EXPECT_EQ(Differing(job, path, path == "avx2" ? 8 : 17), 0);
  }
}

TEST(DeterministicTest, GradientsUnderMasksAndModifiers) {
  JobCase job = GradientJob(DataType::kFp32);
  Mask window = Causal(), odd;
  window.window_left = 100;
  window.always_visible = 7;
  odd.chunk = 190;
  odd.query_heads = {1, 2};
  job.spec.masks = {window, odd};
  job.spec.modifiers.soft_cap = 3;
  job.spec.modifiers.sinks = {-1.0f, 0.5f, 2.0f, 4.0f};
  job.spec.dropout = Dropout{0.25, 11};
  EXPECT_EQ(Differing(job, "auto", 13), 0);
  // Some rows see late keys before others see early ones.
  Mask ranges;
  ranges.ranges = {{300, 600, 0, 300, MaskRange::Kind::kFull},
                   {0, 600, 350, 700, MaskRange::Kind::kFull}};
  job.spec.masks = {ranges};
  job.spec.modifiers.bias = Bias{DataType::kBf16, 1};
  job.spec.gradients.d_bias = true;
  EXPECT_EQ(Differing(job, "auto", 13), 0);
}

// Each rank computes the gradients of its heads in one pass, or, in a grid, in two.
TEST(DeterministicTest, GradientsWhereRanksExchangeHeads) {
  constexpr Strategy kExchanges[] = {Strategy::kUlysses, Strategy::kUlyssesRing};
  JobCase job = GradientJob(DataType::kBf16);
  job.spec.q_heads = 8;
  job.spec.kv_heads = 4;
  job.spec.sequences[0].q_len = 350;
  job.spec.sequences[0].kv_len = 400;
  Mask odd;
  odd.chunk = 190;
  odd.query_heads = {1, 2, 7};
  job.spec.masks = {Causal(), odd};
  job.spec.modifiers.sinks = {-1.0f, 0.5f, 2.0f, 4.0f, 0, 1, 2, 3};
  job.spec.modifiers.bias = Bias{DataType::kBf16, 8};
  job.spec.gradients.d_bias = true;
  EXPECT_FALSE(FoldingWays(job.spec, 2, Strategy::kUlysses).empty());
  EXPECT_TRUE(FoldingWays(job.spec, 3, Strategy::kUlysses).empty());
  EXPECT_FALSE(FoldingWays(job.spec, 4, Strategy::kUlysses).empty());
  EXPECT_EQ(FoldingWays(job.spec, 4, Strategy::kUlyssesRing).at(0).ulysses_degree, 2);
  EXPECT_EQ(Differing(job, "auto", 3, kExchanges), 0);
  job.seed = 2;
  job.spec.gradients.d_bias = false;
  job.spec.modifiers.bias.reset();
  EXPECT_EQ(Differing(job, "auto", 3, kExchanges), 0);
  job.spec.deterministic = false;
  EXPECT_GT(Differing(job, "auto", 3, kExchanges), 1);
}

// Jobs whose keys a call splits into chunks if the option is not set.
std::vector<std::pair<std::string, JobCase>> JobsForThreads() {
  std::vector<std::pair<std::string, JobCase>> jobs = SmallFoldingJobs();
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const bool gradients : {false, true}) {
      JobCase few = gradients ? GradientJob(dtype) : Job(dtype);
      few.spec.sequences.resize(1);
      few.spec.sequences[0].q_len = 2;
      few.spec.sequences[0].kv_len = 9001;
      few.spec.masks = {Causal()};
      few.spec.head_dim = few.spec.head_dim_v = 24;
      jobs.emplace_back(absl::StrCat(gradients ? "gradients " : "", DataTypeName(dtype), " 2x9001"),
                        few);
    }
  }
  return jobs;
}

TEST(DeterministicTest, ThreadsChangeNoBitOfFewQueriesOrMany) {
  constexpr int32_t kRanks = 3;
  uint64_t n = 0;
  for (const auto& [name, job] : JobsForThreads()) {
    const Inputs inputs = MakeInputs(job.spec, job.seed);
    JobCase alone = job;
    ASSERT_TRUE(SetFoldingPlan(1, Layout::kContiguous, Strategy::kRingPassKv, 0, &alone));
    const std::vector<JobCase> plans = FoldingPlans(job, kRanks);
    ASSERT_FALSE(plans.empty());
    for (const std::string& path : Paths()) {
      SCOPED_TRACE(absl::StrCat(name, " ", path));
      const Bits expected = BitsOfRun(alone, inputs, path, 1);
      for (const int threads : {1, 2, 3}) {
        const JobCase& planned = plans[++n % plans.size()];
        EXPECT_TRUE(Same(BitsOfRun(alone, inputs, path, threads), expected)) << threads;
        EXPECT_TRUE(Same(BitsOfRun(planned, inputs, path, threads), expected))
            << threads << " " << Describe(planned);
      }
    }
  }
}

// Shows that chunks of keys would change the bits of these jobs.
TEST(DeterministicTest, WithoutTheOptionBitsOfFewQueriesDiffer) {
  int64_t differing = 0;
  for (auto& [name, job] : JobsForThreads()) {
    if (job.spec.q_rows() > 5 || job.spec.operation == Operation::kGradients) continue;
    const Inputs inputs = MakeInputs(job.spec, job.seed);
    ASSERT_TRUE(SetFoldingPlan(1, Layout::kContiguous, Strategy::kRingPassKv, 0, &job));
    const Bits expected = BitsOfRun(job, inputs, "auto", 1);
    job.spec.deterministic = false;
    differing += Same(BitsOfRun(job, inputs, "auto", 1), expected) ? 0 : 1;
  }
  EXPECT_GE(differing, 2);
}

TEST(DeterministicTest, RandomJobs) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 3; ++i) {
    JobCase job = Job(i % 2 == 0 ? DataType::kBf16 : DataType::kFp32);
    job.seed = random();
    for (Sequence& sequence : job.spec.sequences) {
      sequence.q_len = random() % 400;
      sequence.kv_len = random() % 900;
    }
    Mask mask = Causal();
    if (random() % 2 == 0) mask.window_left = random() % 500;
    if (random() % 2 == 0) mask.prefix = random() % 300;
    if (random() % 2 == 0) mask.always_visible = random() % 40;
    job.spec.masks = {mask};
    EXPECT_EQ(Differing(job, "auto", 3), 0);
  }
}

// Shows that the comparison can fail: without the option, bits depend on the plan.
TEST(DeterministicTest, WithoutTheOptionBitsDiffer) {
  JobCase job = Job(DataType::kFp32);
  job.spec.masks = {Causal()};
  job.spec.deterministic = false;
  EXPECT_GT(Differing(job, "auto", 4), 5);
  job = GradientJob(DataType::kFp32);
  job.spec.deterministic = false;
  EXPECT_GT(Differing(job, "auto", 13), 3);
}

}  // namespace
}  // namespace annulus
