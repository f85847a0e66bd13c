#include "tests/worker/executor/conformance_cases.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attention/spec/parallel_degrees.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

using Set = std::function<void(Draw*, ConformanceJob*)>;

Set SetSpec(std::function<void(Draw*, AttentionSpec*)> set) {
  return [set](Draw* draw, ConformanceJob* to) { set(draw, &to->job.spec); };
}

// The budget's naive error is steady only at the larger size. The reference kernel does not need
// this, because its error is the naive error.
Axis Kernels() {
  const auto some = [](Draw* draw, int64_t least, int64_t spread, ConformanceJob* to) {
    to->job.spec.head_dim = static_cast<int32_t>(least + draw->Below(spread));
    to->job.spec.head_dim_v = static_cast<int32_t>(least + draw->Below(spread));
  };
  Axis axis{"kernel",
            {{"reference", [=](Draw* draw, ConformanceJob* to) { some(draw, 6, 11, to); }},
             {"cpu", [=](Draw* draw, ConformanceJob* to) {
                to->cpu_kernel = true;
                some(draw, 33, 32, to);
              }}}};
  constexpr int32_t kDims[][2] = {{1, 1}, {129, 129}, {192, 128}, {256, 256}};
  for (const auto& dims : kDims) {
    axis.values.push_back({absl::StrCat("cpu of ", dims[0], "/", dims[1]),
                           [dim = dims[0], value_dim = dims[1]](Draw*, ConformanceJob* to) {
                             to->cpu_kernel = true;
                             to->job.spec.head_dim = dim;
                             to->job.spec.head_dim_v = value_dim;
                           }});
  }
  return axis;
}

Axis Operations() {
  return {"operation",
          {{"forward", [](Draw*, ConformanceJob*) {}},
           {"gradients", SetSpec([](Draw* draw, AttentionSpec* spec) {
              spec->operation = Operation::kGradients;
              spec->gradients.d_lse = draw->Below(2) == 0;
            })}}};
}

Axis Types() {
  Axis axis{"dtype", {}};
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const DataType out : {DataType::kUnspecified, DataType::kFp32}) {
      if (dtype == out) continue;
      axis.values.push_back(
          {absl::StrCat(DataTypeName(dtype), out == DataType::kFp32 ? " to fp32" : ""),
           SetSpec([=](Draw*, AttentionSpec* spec) {
             spec->dtype = dtype;
             spec->out_dtype = out;
           })});
    }
  }
  return axis;
}

// Heads that the ranks divide or not, fewer key/value heads than ranks, one head.
Axis Heads() {
  Axis axis{"heads", {}};
  constexpr int32_t kHeads[][2] = {{4, 2}, {6, 3}, {2, 1}, {8, 1}, {5, 5}, {7, 7}, {12, 4}, {1, 1}};
  for (const auto& heads : kHeads) {
    axis.values.push_back({absl::StrCat(heads[0], "/", heads[1]),
                           SetSpec([q = heads[0], kv = heads[1]](Draw*, AttentionSpec* spec) {
                             spec->q_heads = q;
                             spec->kv_heads = kv;
                           })});
  }
  return axis;
}

// Lengths of one sequence or several, from about `n` rows.
Axis Rows() {
  using Make = std::function<std::vector<Sequence>(Draw*, int64_t)>;
  const auto rows = [](std::string name, const Make& make) {
    return AxisValue{std::move(name), [make](Draw* draw, ConformanceJob* to) {
                       to->job.spec.sequences = make(draw, to->cpu_kernel ? 110 : 48);
                     }};
  };
  return {"rows",
          {rows("equal",
                [](Draw* draw, int64_t n) {
                  const int64_t length = n / 2 + draw->Below(n / 2);
                  return std::vector<Sequence>{Lengths(length, length)};
                }),
           rows("more keys",
                [](Draw* draw, int64_t n) {
                  const int64_t length = n / 2 + draw->Below(n / 3);
                  return std::vector<Sequence>{Lengths(length, length + 1 + draw->Below(n / 3))};
                }),
           rows("more queries",  // If causal, the first rows see no key.
                [](Draw* draw, int64_t n) {
                  const int64_t length = n / 2 + draw->Below(n / 3);
                  return std::vector<Sequence>{Lengths(length + 1 + draw->Below(n / 3), length)};
                }),
           rows("few queries",
                [](Draw* draw, int64_t n) {
                  std::vector<Sequence> few(6);
                  for (Sequence& s : few) s = Lengths(1 + draw->Below(3), n / 2 + draw->Below(n));
                  return few;
                }),
           rows("packed",
                [](Draw* draw, int64_t n) {
                  std::vector<Sequence> packed(2 + draw->Below(4));
                  for (Sequence& s : packed)
                    s = Lengths(draw->Below(n * 2 / 3), draw->Below(n * 2 / 3));
                  packed[0] = Lengths(n / 2, n / 2);
                  return packed;
                }),
           {"next to nothing", [](Draw* draw, ConformanceJob* to) {
              constexpr int64_t kFew[][2] = {{1, 0}, {0, 1}, {0, 0}, {9, 2}, {1, 1}};
              const bool backward = to->job.spec.operation == Operation::kGradients;
              const auto& few = kFew[draw->Below(backward ? 4 : 5)];
              to->job.spec.sequences = {Lengths(few[0], few[1])};
            }}}};
}

Mask AnyMask(Draw* draw) {
  Mask mask;
  mask.alignment = static_cast<Mask::Alignment>(draw->Below(2));
  mask.causal = draw->Below(3) > 0;
  if (draw->Below(2) == 0) mask.window_left = draw->Below(20);
  if (draw->Below(3) == 0) mask.window_right = draw->Below(10);
  if (draw->Below(3) == 0) mask.chunk = 1 + draw->Below(15);
  if (mask.causal && draw->Below(3) == 0) mask.prefix = draw->Below(12);
  if (draw->Below(3) == 0) mask.always_visible = draw->Below(4);
  for (int64_t n = draw->Below(3) == 0 ? 1 + draw->Below(4) : 0; n > 0; --n) {
    const int64_t q = draw->Below(40), k = draw->Below(40);
    mask.ranges.push_back({q, q + 1 + draw->Below(40), k, k + 1 + draw->Below(40),
                           static_cast<MaskRange::Kind>(draw->Below(4))});
  }
  mask.bit_mask = draw->Below(3) == 0;
  return mask;
}

Axis Masks() {
  Axis axis{"mask", {{"none", [](Draw*, ConformanceJob*) {}}}};
  for (const Mask& mask : TestMasks()) {
    axis.values.push_back(
        {Describe(mask), SetSpec([mask](Draw*, AttentionSpec* spec) { spec->masks = {mask}; })});
  }
  const auto add_bits = [&axis](const std::string& name, Mask mask, bool of_heads) {
    mask.bit_mask = true;
    axis.values.push_back({name, SetSpec([=](Draw*, AttentionSpec* spec) {
                             spec->masks = {mask};
                             spec->bit_mask_heads = of_heads ? spec->q_heads : 1;
                           })});
  };
  Mask causal, window, ranges;
  causal.causal = true;
  window.window_left = 9;
  window.window_right = 4;
  ranges.ranges = {{0, 25, 0, 40, MaskRange::Kind::kFull},
                   {15, 110, 10, 110, MaskRange::Kind::kCausal}};
  add_bits("bit mask", Mask(), false);
  add_bits("causal bit mask of heads", causal, true);
  add_bits("bit mask of heads in a window", window, true);
  add_bits("bit mask in ranges", ranges, false);
  axis.values.push_back(
      {"any", SetSpec([](Draw* draw, AttentionSpec* spec) { spec->masks = {AnyMask(draw)}; })});
  return axis;
}

// Different masks for some sequences, for some heads, for both.
Axis MaskWays() {
  Axis axis{"mask of", {}};
  for (int64_t way = 0; way < kMaskWays; ++way) {
    axis.values.push_back({absl::StrCat("way ", way), SetSpec([way](Draw*, AttentionSpec* spec) {
                             if (!spec->masks.empty()) VaryMasks(way, spec);
                           })});
  }
  return axis;
}

Axis Modifiers() {
  const auto cap = [](Draw* draw, AttentionSpec* spec) {
    spec->modifiers.soft_cap = 1 + 0.25 * static_cast<double>(draw->Below(5));
  };
  const auto alibi = [](Draw*, AttentionSpec* spec) {
    for (int32_t h = 0; h < spec->q_heads; ++h) {
      spec->modifiers.alibi_slopes.push_back(h % 4 == 3 ? -0.0625f
                                                        : 0.5f / static_cast<float>(1 + h));
    }
  };
  const auto sinks = [](Draw* draw, AttentionSpec* spec) {
    for (int32_t h = 0; h < spec->q_heads; ++h) {
      spec->modifiers.sinks.push_back(static_cast<float>(draw->Below(5)) - 1.5f);
    }
  };
  return {"modifier",
          {{"plain", [](Draw*, ConformanceJob*) {}},
           {"soft cap", SetSpec(cap)},
           {"alibi", SetSpec(alibi)},
           {"cap and alibi", SetSpec([=](Draw* draw, AttentionSpec* spec) {
              cap(draw, spec);
              alibi(draw, spec);
            })},
           {"scale", SetSpec([](Draw* draw, AttentionSpec* spec) {
              spec->scale = draw->Below(2) == 0 ? 0.45 : -0.3;
            })},
           {"sinks", SetSpec(sinks)},
           {"bias", SetSpec([=](Draw* draw, AttentionSpec* spec) {
              spec->modifiers.bias =
                  Bias{draw->Below(2) == 0 ? DataType::kUnspecified : DataType::kFp16, 1};
              spec->gradients.d_bias = spec->operation == Operation::kGradients;
            })},
           {"cap and bias of heads", SetSpec([=](Draw* draw, AttentionSpec* spec) {
              cap(draw, spec);
              spec->modifiers.bias = Bias{DataType::kUnspecified, spec->q_heads};
              spec->gradients.d_bias =
                  spec->operation == Operation::kGradients && draw->Below(4) > 0;
            })},
           {"lse offset",
            SetSpec([](Draw*, AttentionSpec* spec) { spec->modifiers.lse_offset = true; })},
           {"cap, alibi and sinks", SetSpec([=](Draw* draw, AttentionSpec* spec) {
              cap(draw, spec);
              alibi(draw, spec);
              sinks(draw, spec);
            })},
           {"dropout", SetSpec([](Draw* draw, AttentionSpec* spec) {
              spec->dropout = Dropout{0.25, draw->Seed()};
            })},
           {"all", SetSpec([=](Draw* draw, AttentionSpec* spec) {
              spec->scale = 0.45;
              cap(draw, spec);
              alibi(draw, spec);
              sinks(draw, spec);
              spec->modifiers.bias = Bias{DataType::kUnspecified, spec->q_heads};
              spec->modifiers.lse_offset = true;
              spec->dropout = Dropout{0.25, draw->Seed()};
            })},
           {"rest of the LSE and an output in fp32", SetSpec([](Draw*, AttentionSpec* spec) {
              spec->outputs.lse_rest = true;
              spec->out_dtype = DataType::kFp32;
              if (spec->operation == Operation::kGradients)
                spec->gradients.d_out_dtype = DataType::kFp32;
            })},
           {"base 2 and max logit", SetSpec([](Draw*, AttentionSpec* spec) {
              spec->outputs.lse_base = LseBase::k2;
              spec->outputs.max_logit = true;
            }),
            true}}};
}

Axis Worlds() {
  Axis axis{"ranks", {}};
  for (int32_t world = 1; world <= 8; ++world) {
    axis.values.push_back({absl::StrCat("W", world),
                           [=](Draw*, ConformanceJob* to) { to->job.plan.world_size = world; }});
  }
  return axis;
}

Axis Layouts() {
  Axis axis{"layout", {}};
  for (const PlanOptions& plan : TestPlans(1)) {
    axis.values.push_back(
        {absl::StrCat(LayoutName(plan.layout), plan.stripe), [=](Draw*, ConformanceJob* to) {
           to->job.plan.layout = plan.layout;
           to->job.plan.stripe = plan.stripe;
         }});
  }
  return axis;
}

// Steps in parts, jobs in segments, rows in granules.
Axis Cuts() {
  return {"cut",
          {{"whole", [](Draw*, ConformanceJob*) {}},
           {"parts",
            [](Draw* draw, ConformanceJob* to) {
              to->job.parts = static_cast<int32_t>(2 + draw->Below(2));
            }},
           {"segments",
            [](Draw* draw, ConformanceJob* to) {
              to->job.segments = static_cast<int32_t>(2 + draw->Below(3));
            }},
           {"both",
            [](Draw* draw, ConformanceJob* to) {
              to->job.parts = 2;
              to->job.segments = static_cast<int32_t>(2 + draw->Below(3));
            }},
           {"granules", [](Draw* draw, ConformanceJob* to) {
              to->job.plan.granule = 2 + draw->Below(2);
              to->job.plan.stripe *= to->job.plan.granule;
            }}}};
}

Axis Strategies() {
  Axis axis{"strategy", {}};
  for (const Strategy strategy : TestStrategies()) {
    axis.values.push_back(
        {std::string(StrategyName(strategy)),
         [=](Draw* draw, ConformanceJob* to) { SetStrategy(strategy, draw->Seed(), &to->job); }});
  }
  return axis;
}

Axis Staging() {
  return {
      "staging",
      {{"copied", [](Draw*, ConformanceJob*) {}}, {"read in place", [](Draw*, ConformanceJob* to) {
                                                     to->job.reads_staging = true;
                                                     to->job.ends_rows = to->cpu_kernel;
                                                   }}}};
}

// By-area and zigzag per sequence cut at their own boundaries, which define the granules.
bool DealsByItself(const std::string& layout) {
  return absl::StartsWith(layout, LayoutName(Layout::kByArea)) ||
         absl::StartsWith(layout, LayoutName(Layout::kZigzagPerSequence));
}

bool HasName(int32_t axis, int32_t value, const std::string& axis_name, const std::string& name) {
  const Axis& of = ConformanceAxes()[axis];
  return of.name == axis_name && of.values[value].name == name;
}

// True if value i of axis a forbids value j of axis b. Called in both orders.
bool Forbids(int32_t a, int32_t i, int32_t b, int32_t j) {
  const Axis& other = ConformanceAxes()[b];
  if (HasName(a, i, "operation", "gradients")) return other.values[j].forward_only;
  if (HasName(a, i, "cut", "granules")) {
    return other.name == "layout" && DealsByItself(other.values[j].name);
  }
  // Without a mask there is none to vary.
  if (HasName(a, i, "mask", "none")) return other.name == "mask of" && j > 0;
  return false;
}

}  // namespace

const std::vector<Axis>& ConformanceAxes() {
  static const auto* axes = new std::vector<Axis>{
      Kernels(),   Operations(), Types(),   Heads(), Rows(),       Masks(),  MaskWays(),
      Modifiers(), Worlds(),     Layouts(), Cuts(),  Strategies(), Staging()};
  return *axes;
}

int32_t AxisNamed(const std::string& name) {
  const std::vector<Axis>& axes = ConformanceAxes();
  const auto found =
      std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return static_cast<int32_t>(found - axes.begin());
}

std::vector<int32_t> ConformanceSizes() {
  std::vector<int32_t> sizes;
  for (const Axis& axis : ConformanceAxes())
    sizes.push_back(static_cast<int32_t>(axis.values.size()));
  return sizes;
}

std::vector<int32_t> SmallSizes() {
  std::vector<int32_t> sizes = ConformanceSizes();
  sizes[AxisNamed("kernel")] = 1;
  return sizes;
}

bool IsMeaningful(int32_t a, int32_t i, int32_t b, int32_t j) {
  return !Forbids(a, i, b, j) && !Forbids(b, j, a, i);
}

ConformanceJob MakeConformanceJob(const Combination& combination, uint64_t seed) {
  Draw draw(seed);
  ConformanceJob made;
  const std::vector<Axis>& axes = ConformanceAxes();
  for (size_t a = 0; a < axes.size(); ++a) axes[a].values[combination[a]].set(&draw, &made);
  made.job.seed = seed;
  return made;
}

std::string Describe(const Combination& combination) {
  std::string text;
  const std::vector<Axis>& axes = ConformanceAxes();
  for (size_t a = 0; a < axes.size(); ++a) {
    absl::StrAppend(&text, a > 0 ? ", " : "", axes[a].values[combination[a]].name);
  }
  return text;
}

void SetStrategy(Strategy strategy, uint64_t n, JobCase* job) {
  Execution open;
  open.strategy = strategy;
  const std::vector<Execution> ways = ResolveDegrees(open, job->plan.world_size, job->spec.q_heads);
  job->execution = ways[n % ways.size()];
}

}  // namespace annulus
