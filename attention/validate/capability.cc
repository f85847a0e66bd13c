#include "attention/validate/capability.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "attention/mask/mask_groups.h"
#include "attention/spec/parallel_degrees.h"
#include "base/error.h"

namespace annulus {
namespace {

struct Request {
  const AttentionSpec& spec;
  const Execution& execution;
};

// A row of the table with its test. `used_at` returns the index that replaces "[]" in the path (any
// number >= 0 if there is none), or kUnused.
constexpr int64_t kUnused = -1;
struct Row {
  Capability capability;
  int64_t (*used_at)(const Request&);
};

constexpr char kNoKernel[] = "No kernel computes it yet.";

int64_t If(bool used) { return used ? 0 : kUnused; }

bool IsGradients(const Request& r) { return r.spec.operation == Operation::kGradients; }

template <typename Items, typename Uses>
int64_t FirstOf(const Items& items, Uses uses) {
  const auto found = std::find_if(items.begin(), items.end(), uses);
  return found == items.end() ? kUnused : found - items.begin();
}

template <DataType dtype>
int64_t Dtype(const Request& r) {
  return If(r.spec.dtype == dtype);
}

template <Strategy strategy>
int64_t Runs(const Request& r) {
  return If(r.execution.strategy == strategy);
}

template <Layout layout>
int64_t Lays(const Request& r) {
  return If(r.execution.layout == layout);
}

template <std::optional<int64_t> Mask::*field>
int64_t MaskField(const Request& r) {
  return FirstOf(r.spec.masks, [](const Mask& mask) { return (mask.*field).has_value(); });
}

template <Mask::Alignment alignment>
int64_t Causal(const Request& r) {
  return FirstOf(r.spec.masks,
                 [](const Mask& mask) { return mask.causal && mask.alignment == alignment; });
}

Row Served(std::string feature, std::string path, int64_t (*used_at)(const Request&)) {
  return {{std::move(feature), true, "", std::move(path)}, used_at};
}

Row NotServed(std::string feature, std::string path, std::string why,
              int64_t (*used_at)(const Request&)) {
  return {{std::move(feature), false, std::move(why), std::move(path)}, used_at};
}

void AddDtypes(std::vector<Row>* rows) {
  rows->push_back(Served("dtype/fp32", "spec.dtype", Dtype<DataType::kFp32>));
  rows->push_back(Served("dtype/fp16", "spec.dtype", Dtype<DataType::kFp16>));
  rows->push_back(Served("dtype/bf16", "spec.dtype", Dtype<DataType::kBf16>));
  rows->push_back(NotServed("dtype/fp8-e4m3", "spec.dtype", kNoKernel, Dtype<DataType::kFp8E4m3>));
  rows->push_back(Served("out-dtype/as-dtype", "spec.out_dtype", [](const Request& r) {
    return If(r.spec.output_dtype() == r.spec.dtype);
  }));
  rows->push_back(Served("out-dtype/fp32", "spec.out_dtype", [](const Request& r) {
    return If(r.spec.output_dtype() == DataType::kFp32);
  }));
  rows->push_back(NotServed("out-dtype/other", "spec.out_dtype",
                            "The output must be fp32 or of the dtype of the inputs.",
                            [](const Request& r) {
                              return If(r.spec.output_dtype() != r.spec.dtype &&
                                        r.spec.output_dtype() != DataType::kFp32);
                            }));
}

bool SplitsNumbers(const Request& r) { return r.spec.arithmetic == Arithmetic::kBf16x3; }

void AddArithmetic(std::vector<Row>* rows) {
  rows->push_back(Served(kBf16x3Feature, "spec.arithmetic",
                         [](const Request& r) { return If(SplitsNumbers(r)); }));
  rows->push_back(NotServed(
      "arithmetic/bf16x3-of-16-bits", "spec.arithmetic",
      "bf16x3 multiplies fp32 numbers; 16-bit numbers keep all their bits without it.",
      [](const Request& r) { return If(SplitsNumbers(r) && r.spec.dtype != DataType::kFp32); }));
  rows->push_back(NotServed(
      "gradients/bf16x3", "spec.arithmetic", "Gradients of fp32 inputs use fp32 products.",
      [](const Request& r) { return If(SplitsNumbers(r) && IsGradients(r)); }));
}

void AddOperations(std::vector<Row>* rows) {
  rows->push_back(Served("operation/forward", "spec.forward", [](const Request& r) {
    return If(r.spec.operation == Operation::kForward);
  }));
  rows->push_back(Served("operation/gradients", "spec.gradients",
                         [](const Request& r) { return If(IsGradients(r)); }));
  rows->push_back(Served("gradients/d-bias", "spec.gradients.d_bias", [](const Request& r) {
    return If(IsGradients(r) && r.spec.gradients.d_bias);
  }));
  rows->push_back(
      Served("gradients/d-out-fp32", "spec.gradients.d_out_dtype", [](const Request& r) {
        return If(IsGradients(r) && r.spec.d_out_dtype() != r.spec.dtype &&
                  r.spec.d_out_dtype() == r.spec.output_dtype());
      }));
  rows->push_back(NotServed("gradients/d-out-other", "spec.gradients.d_out_dtype",
                            "It must be spec.dtype, or fp32 if the output is fp32.",
                            [](const Request& r) {
                              return If(IsGradients(r) && r.spec.d_out_dtype() != r.spec.dtype &&
                                        r.spec.d_out_dtype() != r.spec.output_dtype());
                            }));
  rows->push_back(Served("state/kept", "spec.forward.keep_state",
                         [](const Request& r) { return If(r.spec.keeps_state()); }));
  rows->push_back(Served("state/used", "spec.gradients.state",
                         [](const Request& r) { return If(r.spec.uses_state()); }));
  rows->push_back(NotServed("gradients/outputs", "spec.outputs",
                            "A gradients job takes the natural-log LSE and returns gradients only.",
                            [](const Request& r) {
                              return If(IsGradients(r) && (r.spec.outputs.max_logit ||
                                                           r.spec.outputs.lse_base != LseBase::kE));
                            }));
}

void AddMasks(std::vector<Row>* rows) {
  rows->push_back(Served("mask/full", "spec.masks", [](const Request& r) {
    static_assert(kMaskFields == 10, "a new field that hides pairs belongs to this list");
    return If(std::none_of(r.spec.masks.begin(), r.spec.masks.end(), [](const Mask& mask) {
      return mask.causal || mask.window_left || mask.window_right || mask.chunk ||
             !mask.ranges.empty() || mask.bit_mask;
    }));
  }));
  rows->push_back(
      Served("mask/causal", "spec.masks[].causal", Causal<Mask::Alignment::kBottomRight>));
  rows->push_back(
      Served("mask/causal-top-left", "spec.masks[].alignment", Causal<Mask::Alignment::kTopLeft>));
  rows->push_back(
      Served("mask/window-left", "spec.masks[].window_left", MaskField<&Mask::window_left>));
  rows->push_back(
      Served("mask/window-right", "spec.masks[].window_right", MaskField<&Mask::window_right>));
  rows->push_back(Served("mask/chunk", "spec.masks[].chunk", MaskField<&Mask::chunk>));
  rows->push_back(Served("mask/prefix", "spec.masks[].prefix", MaskField<&Mask::prefix>));
  rows->push_back(Served("mask/always-visible", "spec.masks[].always_visible",
                         MaskField<&Mask::always_visible>));
  rows->push_back(Served("mask/ranges", "spec.masks[].ranges", [](const Request& r) {
    return FirstOf(r.spec.masks, [](const Mask& mask) { return !mask.ranges.empty(); });
  }));
  rows->push_back(Served("mask/bit-mask", "spec.masks[].bit_mask", [](const Request& r) {
    return FirstOf(r.spec.masks, [](const Mask& mask) { return mask.bit_mask; });
  }));
  rows->push_back(Served("mask/per-head", "spec.masks[].query_heads", [](const Request& r) {
    return FirstOf(r.spec.masks, [](const Mask& mask) { return !mask.query_heads.empty(); });
  }));
  rows->push_back(Served("mask/per-sequence", "spec.sequences[].mask", [](const Request& r) {
    return FirstOf(r.spec.sequences, [](const Sequence& s) { return s.mask != 0; });
  }));
}

template <Strategy strategy>
Row MergesInAnyOrder() {
  return NotServed(absl::StrCat("deterministic/", StrategyName(strategy)), "execution.strategy",
                   "It merges partials, and their number depends on the number of workers.",
                   [](const Request& r) {
                     return If(r.spec.deterministic && r.execution.strategy == strategy);
                   });
}

// True if every degree that the request leaves open makes ranks share (`shares`).
bool MustShare(const Request& r, bool (*shares)(const AttentionSpec&, int32_t)) {
  const Execution& e = r.execution;
  if (!r.spec.deterministic) return false;
  if (e.ulysses_degree > 0) return shares(r.spec, e.ulysses_degree);
  const bool exchanges = e.strategy == Strategy::kUlysses || e.strategy == Strategy::kUlyssesRing;
  if (!exchanges || e.world_size == 0) return false;
  const std::vector<Execution> ways = ResolveDegrees(e, e.world_size, r.spec.q_heads);
  return !ways.empty() && std::all_of(ways.begin(), ways.end(), [&](const Execution& way) {
    return shares(r.spec, way.ulysses_degree);
  });
}

void AddSharedGradients(std::vector<Row>* rows) {
  rows->push_back(NotServed("deterministic/gradients-of-shared-heads", "execution.ulysses_degree",
                            "It must divide spec.kv_heads: ranks that share a key/value head would "
                            "add up its gradients by rank.",
                            [](const Request& r) { return If(MustShare(r, SharesKeyHeads)); }));
  rows->push_back(NotServed("deterministic/d-bias-of-exchanged-heads", "execution.ulysses_degree",
                            "Ranks that exchange heads would add up the gradient of a bias of one "
                            "head by rank.",
                            [](const Request& r) { return If(MustShare(r, SharesBiasGradient)); }));
}

void AddVariants(std::vector<Row>* rows) {
  rows->push_back(Served("score/soft-cap", "spec.modifiers.soft_cap", [](const Request& r) {
    return If(r.spec.modifiers.soft_cap.has_value());
  }));
  rows->push_back(Served("score/alibi", "spec.modifiers.alibi_slopes", [](const Request& r) {
    return If(!r.spec.modifiers.alibi_slopes.empty());
  }));
  rows->push_back(Served("score/bias", "spec.modifiers.bias",
                         [](const Request& r) { return If(r.spec.modifiers.bias.has_value()); }));
  rows->push_back(Served("score/lse-offset", "spec.modifiers.lse_offset",
                         [](const Request& r) { return If(r.spec.modifiers.lse_offset); }));
  rows->push_back(Served("score/sinks", "spec.modifiers.sinks",
                         [](const Request& r) { return If(!r.spec.modifiers.sinks.empty()); }));
  rows->push_back(Served("output/lse-base-2", "spec.outputs.lse_base", [](const Request& r) {
    return If(r.spec.outputs.lse_base != LseBase::kE);
  }));
  rows->push_back(Served("output/max-logit", "spec.outputs.max_logit",
                         [](const Request& r) { return If(r.spec.outputs.max_logit); }));
  rows->push_back(Served("output/lse-rest", "spec.outputs.lse_rest",
                         [](const Request& r) { return If(r.spec.outputs.lse_rest); }));
  rows->push_back(Served("deterministic", "spec.deterministic",
                         [](const Request& r) { return If(r.spec.deterministic); }));
  rows->push_back(MergesInAnyOrder<Strategy::kRingPassQ>());
  rows->push_back(MergesInAnyOrder<Strategy::kTree>());
  rows->push_back(Served("deterministic/gradients", "spec.deterministic", [](const Request& r) {
    return If(r.spec.deterministic && IsGradients(r));
  }));
  AddSharedGradients(rows);
  rows->push_back(
      NotServed("deterministic/d-bias-of-masked-heads", "spec.gradients.d_bias",
                "The gradient of a bias of one head sums heads with different masks in the order "
                "of the plan.",
                [](const Request& r) {
                  const bool one_head = r.spec.modifiers.bias && r.spec.modifiers.bias->heads == 1;
                  return If(r.spec.deterministic && IsGradients(r) && r.spec.gradients.d_bias &&
                            one_head && MaskGroups(r.spec).first_of_class.size() > 1);
                }));
  rows->push_back(Served("dropout", "spec.dropout",
                         [](const Request& r) { return If(r.spec.dropout.has_value()); }));
  rows->push_back(NotServed(
      "session", "spec.sequences[].session", "Keys do not stay on the workers between jobs yet.",
      [](const Request& r) {
        return FirstOf(r.spec.sequences, [](const Sequence& s) { return !s.session.empty(); });
      }));
}

template <Strategy strategy>
Row StrategyRow() {
  return Served(absl::StrCat("strategy/", StrategyName(strategy)), "execution.strategy",
                Runs<strategy>);
}

template <Layout layout>
Row LayoutRow() {
  return Served(absl::StrCat("layout/", LayoutName(layout)), "execution.layout", Lays<layout>);
}

void AddBf16Partials(std::vector<Row>* rows) {
  const std::string field = "execution.bf16_partials";
  rows->push_back(Served("execution/bf16-partials", field,
                         [](const Request& r) { return If(r.execution.bf16_partials); }));
  rows->push_back(NotServed("bf16-partials/strategy", field,
                            "Only ranks of ring-pass-q and tree send partial outputs.",
                            [](const Request& r) {
                              const Strategy strategy = r.execution.strategy;
                              return If(r.execution.bf16_partials && strategy != Strategy::kAuto &&
                                        !SendsPartials(strategy));
                            }));
  rows->push_back(NotServed(
      "bf16-partials/one-rank", field,
      "It excludes world_size 1 and ring_degree 1: one rank sends nothing, and ranks that "
      "only exchange heads send no partial outputs.",
      [](const Request& r) {
        const bool one = r.execution.world_size == 1 || r.execution.ring_degree == 1;
        return If(r.execution.bf16_partials && one);
      }));
  rows->push_back(
      NotServed("bf16-partials/gradients", field, "Gradients travel in fp32.",
                [](const Request& r) { return If(r.execution.bf16_partials && IsGradients(r)); }));
  rows->push_back(NotServed(
      "bf16-partials/deterministic", field, "A deterministic job sends no partial outputs.",
      [](const Request& r) { return If(r.execution.bf16_partials && r.spec.deterministic); }));
}

void AddExecution(std::vector<Row>* rows) {
  static_assert(kLastStrategy == Strategy::kHalo, "a new strategy needs a row");
  static_assert(kLastLayout == Layout::kZigzagPerSequence, "a new layout needs a row");
  rows->push_back(StrategyRow<Strategy::kAuto>());
  rows->push_back(StrategyRow<Strategy::kRingPassKv>());
  rows->push_back(StrategyRow<Strategy::kAllGatherKv>());
  rows->push_back(StrategyRow<Strategy::kRotateKv>());
  rows->push_back(StrategyRow<Strategy::kHalo>());
  rows->push_back(StrategyRow<Strategy::kRingPassQ>());
  rows->push_back(StrategyRow<Strategy::kUlysses>());
  rows->push_back(StrategyRow<Strategy::kUlyssesRing>());
  rows->push_back(StrategyRow<Strategy::kDoubleRing>());
  rows->push_back(StrategyRow<Strategy::kTree>());
  rows->push_back(LayoutRow<Layout::kAuto>());
  rows->push_back(LayoutRow<Layout::kContiguous>());
  rows->push_back(LayoutRow<Layout::kZigzag>());
  rows->push_back(LayoutRow<Layout::kStriped>());
  rows->push_back(LayoutRow<Layout::kByArea>());
  rows->push_back(LayoutRow<Layout::kZigzagPerSequence>());
  rows->push_back(Served("execution/ulysses-degree", "execution.ulysses_degree",
                         [](const Request& r) { return If(r.execution.ulysses_degree != 0); }));
  rows->push_back(Served("execution/ring-degree", "execution.ring_degree",
                         [](const Request& r) { return If(r.execution.ring_degree != 0); }));
  rows->push_back(Served("execution/inner-ring-degree", "execution.inner_ring_degree",
                         [](const Request& r) { return If(r.execution.inner_ring_degree != 0); }));
  rows->push_back(Served("execution/head-deal", "execution.head_deal", [](const Request& r) {
    return If(r.execution.head_deal != HeadAssignment::kAuto);
  }));
  AddBf16Partials(rows);
  rows->push_back(Served("execution/priority", "execution.priority",
                         [](const Request& r) { return If(r.execution.priority != 0); }));
  rows->push_back(NotServed("execution/timeline", "execution.timeline",
                            "Workers record no timeline yet.",
                            [](const Request& r) { return If(r.execution.timeline); }));
}

const std::vector<Row>& Rows() {
  static const std::vector<Row>& rows = *[] {
    auto* made = new std::vector<Row>;
    AddDtypes(made);
    AddArithmetic(made);
    AddOperations(made);
    AddMasks(made);
    AddVariants(made);
    AddExecution(made);
    return made;
  }();
  return rows;
}

}  // namespace

absl::Span<const Capability> CapabilityTable() {
  static const std::vector<Capability>& table = *[] {
    auto* made = new std::vector<Capability>;
    for (const Row& row : Rows()) made->push_back(row.capability);
    return made;
  }();
  return table;
}

std::vector<Capability> FeaturesOf(const AttentionSpec& spec, const Execution& execution) {
  std::vector<Capability> features;
  for (const Row& row : Rows()) {
    const int64_t index = row.used_at({spec, execution});
    if (index == kUnused) continue;
    features.push_back(row.capability);
    features.back().field_path =
        absl::StrReplaceAll(row.capability.field_path, {{"[]", absl::StrCat("[", index, "]")}});
  }
  return features;
}

namespace {

absl::Status NotServedError(const std::vector<Capability>& features) {
  ErrorDetail detail;
  std::vector<std::string> names, sentences;
  for (const Capability& feature : features) {
    if (feature.served) continue;
    names.push_back(feature.feature);
    sentences.push_back(
        absl::StrCat(feature.field_path, " (", feature.feature, "): ", feature.why_not));
    detail.fields.push_back({feature.field_path, feature.why_not});
  }
  if (names.empty()) return absl::OkStatus();
  detail.reason = "NOT_SERVED";
  detail.metadata["features"] = absl::StrJoin(names, ",");
  return MakeError(absl::StatusCode::kUnimplemented,
                   absl::StrCat("not served: ", absl::StrJoin(sentences, " ")), detail);
}

}  // namespace

absl::Status CheckServed(const AttentionSpec& spec, const Execution& execution) {
  return NotServedError(FeaturesOf(spec, execution));
}

absl::Span<const Capability> CudaLacks() {
  static const auto& lacks = *new std::vector<Capability>{
      {kBf16x3Feature, false, "It needs AMX, which only CPUs have.", "spec.arithmetic"}};
  return lacks;
}

absl::Status CheckNotLacking(absl::Span<const Capability> lacks, const AttentionSpec& spec,
                             const Execution& execution) {
  if (lacks.empty()) return absl::OkStatus();
  std::vector<Capability> lacking;
  for (const Capability& used : FeaturesOf(spec, execution)) {
    for (const Capability& lack : lacks) {
      if (lack.feature != used.feature) continue;
      lacking.push_back(used);
      lacking.back().served = false;
      lacking.back().why_not = lack.why_not;
    }
  }
  return NotServedError(lacking);
}

}  // namespace annulus
