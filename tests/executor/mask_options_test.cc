// No strategy drops an option of a mask: setting it changes the output, to the one that is right.

#include <functional>
#include <string>

#include "attention/degrees.h"
#include "tests/executor/job_runner.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus {
namespace {

constexpr int32_t kRanks = 3;

struct Option {
  std::string name;
  std::function<void(AttentionSpec*)> set;
};

// Base: two sequences, causal with a window and more keys than queries, so that every field counts.
AttentionSpec BaseSpec() {
  AttentionSpec spec = SmallSpec(DataType::kFp32, 50, 61);
  spec.sequences.resize(2, spec.sequences[0]);
  Mask mask;
  mask.causal = true;
  mask.window_left = 20;
  spec.masks = {mask};
  return spec;
}

std::vector<Option> Options() {
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
  };
}

class MaskOptions : public testing::TestWithParam<Strategy> {};

TEST_P(MaskOptions, SettingOneChangesTheOutputAndIsRight) {
  static Group& group = *new Group(
      ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); }, kRanks));
  const auto run = [&](const AttentionSpec& spec) {
    JobCase job;
    job.spec = spec;
    job.plan.world_size = kRanks;
    Execution open;
    open.strategy = GetParam();
    job.execution = ResolveDegrees(open, kRanks, spec.q_heads).front();
    JobRunner runner(job);
    EXPECT_TRUE(runner.RunAndJudge(group, [] { return *CpuKernel::Create({}); }));
    return runner.Gathered();
  };
  const reference::Answer base = run(BaseSpec());
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.name);
    AttentionSpec spec = BaseSpec();
    option.set(&spec);
    const reference::Answer changed = run(spec);
    EXPECT_NE(changed.out, base.out);
    EXPECT_NE(changed.lse, base.lse);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, MaskOptions,
                         testing::Values(Strategy::kRingPassKv, Strategy::kAllGatherKv,
                                         Strategy::kRotateKv, Strategy::kHalo, Strategy::kUlysses,
                                         Strategy::kUlyssesRing, Strategy::kRingPassQ,
                                         Strategy::kDoubleRing, Strategy::kTree),
                         [](const auto& info) {
                           std::string name(StrategyName(info.param));
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace annulus
