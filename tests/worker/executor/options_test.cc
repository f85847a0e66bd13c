// No strategy drops an option of masks, scores, weights, outputs or arithmetic, forward or
// backward: the option changes the answer to the correct one. Dropout is the same for every
// strategy, layout and number of ranks.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/planning/cost_model.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/parallel_degrees.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/reference/reference_attention.h"
#include "tests/worker/executor/job_runner.h"
#include "tests/worker/kernel/amx_or_emulation.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

constexpr int32_t kRanks = 3;

struct Option {
  std::string name;
  std::function<void(AttentionSpec*)> set;
  bool changes_out = true, changes_lse = true;
  bool changes_gradients = true;  // Gradients dq, dk and dv.
};

AttentionSpec BaseSpec() {
  AttentionSpec spec = SmallSpec(DataType::kFp32, 50, 61);
  spec.sequences.resize(2, spec.sequences[0]);
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  spec.masks[0].window_left = 20;
  return spec;
}

std::vector<Option> MaskOptions() {
  using Kind = MaskRange::Kind;
  const auto field = [](auto set) { return [set](AttentionSpec* spec) { set(spec->masks[0]); }; };
  const auto ranges = [&](Kind kind) {
    return field([kind](Mask& m) { m.ranges = {{0, 50, 10, 45, kind}, {5, 40, 30, 61, kind}}; });
  };
  return {
      {"open", field([](Mask& m) { m.causal = false; })},
      {"top-left", field([](Mask& m) { m.alignment = Mask::Alignment::kTopLeft; })},
      {"window-left", field([](Mask& m) { m.window_left = 4; })},
      {"window-right", field([](Mask& m) { m.causal = false, m.window_right = 2; })},
      {"chunk", field([](Mask& m) { m.chunk = 7; })},
      {"prefix", field([](Mask& m) { m.prefix = 40; })},
      {"always-visible", field([](Mask& m) { m.always_visible = 3; })},
      {"ranges-full", ranges(Kind::kFull)},
      {"ranges-causal", ranges(Kind::kCausal)},
      {"ranges-inverse", ranges(Kind::kInverseCausal)},
      {"ranges-bi-causal", ranges(Kind::kBiCausal)},
      {"bit-mask", field([](Mask& m) { m.bit_mask = true; })},
      {"bit-mask-of-heads",
       [](AttentionSpec* spec) {
         spec->masks[0].bit_mask = true;
         spec->bit_mask_heads = 4;
       }},
      {"per-sequence",
       [](AttentionSpec* spec) {
         spec->masks.emplace_back().causal = true;
         spec->sequences[1].mask = 1;
       }},
      {"per-head",
       [](AttentionSpec* spec) {
         Mask mask;
         mask.query_heads = {2};
         spec->masks.push_back(mask);
       }},
      {"documents",  // The same number of rows as without documents.
       [](AttentionSpec* spec) {
         const Sequence whole = spec->sequences[0];
         Sequence begin = whole, end = whole;
         begin.q_len = 20;
         begin.kv_len = 31;
         end.q_len -= begin.q_len;
         end.kv_len -= begin.kv_len;
         spec->sequences = {begin, end, whole};
       }},
  };
}

std::vector<Option> ScoreOptions() {
  return {
      {"scale", [](AttentionSpec* spec) { spec->scale = -0.3; }},
      {"soft-cap", [](AttentionSpec* spec) { spec->modifiers.soft_cap = 1.25; }},
      {"alibi",
       [](AttentionSpec* spec) {
         spec->modifiers.alibi_slopes = {0.5f, 0.25f, 0.1f, 1};
       }},
      {"sinks",
       [](AttentionSpec* spec) {
         spec->modifiers.sinks = {2, -1, 0.5f, 4};
       }},
      {"bias",
       [](AttentionSpec* spec) {
         spec->modifiers.bias = Bias{DataType::kBf16, 1};
       }},
      {"bias-of-heads",
       [](AttentionSpec* spec) {
         spec->modifiers.bias = Bias{DataType::kUnspecified, 4};
       }},
      {"lse-offset", [](AttentionSpec* spec) { spec->modifiers.lse_offset = true; }, false, true,
       false},
      {"dropout",
       [](AttentionSpec* spec) {
         spec->dropout = Dropout{0.25, 3};
       },
       true, false},
  };
}

// Only for forward jobs.
std::vector<Option> OutputOptions() {
  return {
      {"lse-base-2", [](AttentionSpec* spec) { spec->outputs.lse_base = LseBase::k2; }, false},
      {"max-logit", [](AttentionSpec* spec) { spec->outputs.max_logit = true; }, false, false},
  };
}

// The options of an operation, and all options of scores and outputs at once.
std::vector<Option> OptionsOf(Operation operation) {
  std::vector<Option> of_scores = ScoreOptions();
  if (operation == Operation::kForward) {
    for (Option& option : OutputOptions()) of_scores.push_back(std::move(option));
  }
  std::vector<Option> options = MaskOptions();
  options.insert(options.end(), of_scores.begin(), of_scores.end());
  options.push_back({"all", [of_scores](AttentionSpec* spec) {
                       for (const Option& option : of_scores) option.set(spec);
                     }});
  return options;
}

struct Way {
  Strategy strategy;
  bool units = false;  // All ranks exchange heads; by units if there are too few heads.
};

// Runs the job and checks its answer. If `isa` is nullptr: with the path of this CPU.
std::unique_ptr<JobRunner> RunJob(const AttentionSpec& spec, const Way& way, Layout layout,
                                  int32_t ranks, bool bf16_partials = false,
                                  const TileIsa* isa = nullptr) {
  JobCase job;
  job.spec = spec;
  job.plan.world_size = ranks;
  job.plan.layout = layout;
  Execution open;
  open.strategy = way.strategy;
  open.bf16_partials = bf16_partials;
  const std::vector<Execution> ways = ResolveDegrees(open, ranks, spec.q_heads);
  job.execution = way.units ? ways.back() : ways.front();
  EXPECT_EQ(job.execution.head_deal == HeadAssignment::kUnits,
            way.units && spec.q_heads % ranks != 0);
  Group group =
      ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); }, ranks);
  auto runner = std::make_unique<JobRunner>(job);
  CpuKernel::Options kernel;
  kernel.isa = isa;
  EXPECT_TRUE(runner->RunAndJudge(group, [&] { return *CpuKernel::Create(kernel); }));
  return runner;
}

reference::Answer Solve(const AttentionSpec& spec, const Way& way, Layout layout, int32_t ranks) {
  return RunJob(spec, way, layout, ranks)->Gathered();
}

std::vector<int64_t> BytesSent(JobRunner& job) {
  std::vector<int64_t> bytes;
  for (int32_t r = 0; r < job.ranks(); ++r)
    bytes.push_back(job.rank(r).executor()->stats().bytes_sent);
  return bytes;
}

std::vector<int64_t> PredictedBytes(const AttentionSpec& spec, Strategy strategy,
                                    bool bf16_partials) {
  PlanOptions options;
  options.world_size = kRanks;
  options.layout = Layout::kZigzag;
  const auto plan = MakeShardPlan(spec, options);
  const MaskMap mask(spec);
  Execution execution;
  execution.strategy = strategy;
  execution.bf16_partials = bf16_partials;
  return PredictCost({&spec, &mask, &*plan, execution}, Rates())->bytes_sent;
}

float Apart(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

class OptionsOfJobs : public testing::TestWithParam<Way> {};

TEST_P(OptionsOfJobs, SettingOneChangesTheAnswerAndIsRight) {
  const reference::Answer base = Solve(BaseSpec(), GetParam(), Layout::kContiguous, kRanks);
  EXPECT_TRUE(base.max_logit.empty());
  for (const Option& option : OptionsOf(Operation::kForward)) {
    SCOPED_TRACE(option.name);
    AttentionSpec spec = BaseSpec();
    option.set(&spec);
    const reference::Answer changed = Solve(spec, GetParam(), Layout::kZigzag, kRanks);
    EXPECT_EQ(changed.max_logit.empty(), !spec.outputs.max_logit);
    // Another layout merges in another order, so unchanged values are equal only up to rounding.
    const float out = Apart(changed.out, base.out), lse = Apart(changed.lse, base.lse);
    EXPECT_EQ(out > 1e-3f, option.changes_out) << out;
    EXPECT_EQ(lse > 1e-3f, option.changes_lse) << lse;
  }
}

TEST_P(OptionsOfJobs, SettingOneChangesTheGradientsAndIsRight) {
  AttentionSpec base_spec = BaseSpec();
  base_spec.operation = Operation::kGradients;
  const auto solve = [](const AttentionSpec& spec, Layout layout) {
    return RunJob(spec, GetParam(), layout, kRanks)->GatheredGradients();
  };
  const reference::GradientAnswer base = solve(base_spec, Layout::kContiguous);
  for (const Option& option : OptionsOf(Operation::kGradients)) {
    SCOPED_TRACE(option.name);
    AttentionSpec spec = base_spec;
    option.set(&spec);
    spec.gradients.d_bias = spec.modifiers.bias.has_value();
    const reference::GradientAnswer changed = solve(spec, Layout::kZigzag);
    EXPECT_EQ(Apart(changed.dq, base.dq) > 1e-3f, option.changes_gradients);
    EXPECT_EQ(Apart(changed.dk, base.dk) > 1e-3f, option.changes_gradients);
    // dv depends only on the weights.
    EXPECT_EQ(Apart(changed.dv, base.dv) > 1e-3f, option.changes_gradients);
    const auto largest = [](const std::vector<float>& of) {
      return of.empty() ? 0 : Apart(of, std::vector<float>(of.size()));
    };
    EXPECT_EQ(largest(changed.d_bias) > 1e-3f, spec.modifiers.bias.has_value());
    EXPECT_EQ(largest(changed.d_sink) > 1e-3f, !spec.modifiers.sinks.empty());
  }
  base_spec.gradients.d_lse = true;
  const reference::GradientAnswer of_lse = solve(base_spec, Layout::kZigzag);
  EXPECT_GT(Apart(of_lse.dq, base.dq), 1e-3f);
  EXPECT_GT(Apart(of_lse.dk, base.dk), 1e-3f);
  EXPECT_LT(Apart(of_lse.dv, base.dv), 1e-3f);  // The LSE does not depend on values.
}

TEST_P(OptionsOfJobs, TypesOfOutputsAreFollowed) {
  AttentionSpec spec = BaseSpec();
  spec.dtype = DataType::kBf16;
  const reference::Answer rounded = Solve(spec, GetParam(), Layout::kZigzag, kRanks);
  spec.out_dtype = DataType::kFp32;
  const reference::Answer whole = Solve(spec, GetParam(), Layout::kZigzag, kRanks);
  EXPECT_GT(Apart(rounded.out, whole.out), 1e-4f);
  const auto fits_bf16 = [](const std::vector<float>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](float number) {
      return reference::RoundTo(reference::Precision::kBf16, number) == number;
    });
  };
  EXPECT_TRUE(fits_bf16(rounded.out));
  EXPECT_FALSE(fits_bf16(whole.out));
}

TEST_P(OptionsOfJobs, ArithmeticIsFollowed) {
  const TileIsa* const amx = AmxOrEmulation();
  if (amx == nullptr) GTEST_SKIP() << "no AMX here, and nothing to emulate it by";
  const auto solve = [&](const AttentionSpec& spec) {
    return RunJob(spec, GetParam(), Layout::kZigzag, kRanks, false, amx)->Gathered();
  };
  AttentionSpec spec = BaseSpec();
  const reference::Answer exact = solve(spec);
  spec.arithmetic = Arithmetic::kBf16x3;
  const reference::Answer split = solve(spec);
  const float apart = Apart(exact.out, split.out);
  EXPECT_GT(apart, 1e-6f);
  EXPECT_LT(apart, 1e-3f);
}

TEST_P(OptionsOfJobs, DropoutIsTheSameForAnyLayoutAndNumberOfRanks) {
  AttentionSpec spec = BaseSpec();
  spec.dropout = Dropout{0.4, 99};
  spec.head_dim_v = 61;
  const reference::Answer one = Solve(spec, {Strategy::kRingPassKv}, Layout::kContiguous, 1);
  for (const Layout layout : {Layout::kContiguous, Layout::kStriped, Layout::kZigzag}) {
    for (const int32_t ranks : {2, 5}) {
      const reference::Answer some = Solve(spec, GetParam(), layout, ranks);
      for (size_t i = 0; i < one.out.size(); ++i) ASSERT_NEAR(some.out[i], one.out[i], 1e-5) << i;
    }
  }
}

TEST_P(OptionsOfJobs, AnotherSeedOfDropoutChangesTheAnswerAndIsRight) {
  AttentionSpec one = BaseSpec(), other = one;
  one.dropout = Dropout{0.25, 3};
  other.dropout = Dropout{0.25, uint64_t{1} << 32 | 3};  // All 64 bits of the seed count.
  const auto out = [](const AttentionSpec& spec) {
    return Solve(spec, GetParam(), Layout::kZigzag, kRanks).out;
  };
  EXPECT_GT(Apart(out(one), out(other)), 1e-3f);
  one.operation = other.operation = Operation::kGradients;
  const auto gradients = [](const AttentionSpec& spec) {
    return RunJob(spec, GetParam(), Layout::kZigzag, kRanks)->GatheredGradients();
  };
  const reference::GradientAnswer a = gradients(one), b = gradients(other);
  EXPECT_GT(Apart(a.dq, b.dq), 1e-3f);
  EXPECT_GT(Apart(a.dk, b.dk), 1e-3f);
  EXPECT_GT(Apart(a.dv, b.dv), 1e-3f);
}

// An option of the execution, for strategies that send partials, with its wider budget.
TEST(OptionsOfExecutions, PartialsInBf16ChangeOutputsNotLseAndTheBytesPredicted) {
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree}) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
      for (const bool rest : {false, true}) {
        SCOPED_TRACE(absl::StrCat(StrategyName(strategy), " ", DataTypeName(dtype), " ", rest));
        AttentionSpec spec = BaseSpec();
        spec.dtype = dtype;
        spec.out_dtype = DataType::kFp32;
        if (rest) ScoreOptions().back().set(&spec);
        const auto exact = RunJob(spec, {strategy}, Layout::kZigzag, kRanks);
        const auto rounded = RunJob(spec, {strategy}, Layout::kZigzag, kRanks, true);
        EXPECT_GT(Apart(rounded->Gathered().out, exact->Gathered().out), 1e-4f);
        EXPECT_EQ(rounded->Gathered().lse, exact->Gathered().lse);
        EXPECT_EQ(rounded->Gathered().max_logit, exact->Gathered().max_logit);
        EXPECT_EQ(BytesSent(*rounded), PredictedBytes(spec, strategy, true));
        EXPECT_EQ(BytesSent(*exact), PredictedBytes(spec, strategy, false));
      }
    }
  }
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const Strategy strategy : TestStrategies()) ways.push_back({strategy});
  ways.push_back({Strategy::kUlysses, true});
  ways.push_back({Strategy::kUlyssesRing, true});
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Strategies, OptionsOfJobs, testing::ValuesIn(Ways()),
                         [](const auto& info) {
                           std::string name(StrategyName(info.param.strategy));
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name + (info.param.units ? "InUnits" : "");
                         });

}  // namespace
}  // namespace annulus
