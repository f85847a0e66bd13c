#include "tests/attention/schedule/schedule_cases.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/spec/parallel_degrees.h"

namespace annulus {
namespace {

Mask MakeMask(bool causal, Mask::Alignment alignment) {
  Mask mask;
  mask.causal = causal;
  mask.alignment = alignment;
  return mask;
}

// Appends a list: its length, and the numbers that `add` appends for each entry.
template <typename List, typename AddFn>
void AddAll(const List& list, std::vector<int64_t>* numbers, const AddFn& add) {
  numbers->push_back(static_cast<int64_t>(list.size()));
  for (const auto& each : list) {
    const auto of_it = add(each);
    numbers->insert(numbers->end(), of_it.begin(), of_it.end());
  }
}

std::vector<int64_t> NumbersOfBlock(const Block& b) {
  return {static_cast<int64_t>(b.kind), b.shard, b.row_begin, b.row_end, b.head_begin, b.head_end};
}

std::vector<int64_t> NumbersOfTransfer(const Transfer& t) {
  return {t.buffer, t.row_begin, t.row_end, t.peer};
}

std::vector<int64_t> NumbersOfTask(const Task& t) {
  return {t.q,
          t.kv,
          t.out_q,
          t.out_kv,
          t.pairs,
          t.out_bias,
          t.q_begin,
          t.q_end,
          t.k_begin,
          t.k_end,
          t.head_begin,
          t.head_end,
          static_cast<int64_t>(t.coverage),
          t.begins.begin,
          t.begins.end,
          t.ends.begin,
          t.ends.end,
          t.out};
}

std::vector<int64_t> NumbersOfOp(const Op& op) {
  return {static_cast<int64_t>(op.kind), op.source, op.target};
}

}  // namespace

Execution ExecutionOf(Strategy strategy) {
  Execution execution;
  execution.strategy = strategy;
  return execution;
}

std::vector<Execution> TestExecutions(Strategy strategy, int32_t world_size, int32_t q_heads) {
  if (strategy != Strategy::kUlyssesRing && strategy != Strategy::kDoubleRing) {
    return ResolveDegrees(ExecutionOf(strategy), world_size, q_heads);
  }
  std::vector<Execution> all;
  for (int32_t degree = 1; degree <= world_size; ++degree) {
    Execution execution = ExecutionOf(strategy);
    (strategy == Strategy::kDoubleRing ? execution.inner_ring_degree : execution.ulysses_degree) =
        degree;
    for (Execution& way : ResolveDegrees(execution, world_size, q_heads)) all.push_back(way);
  }
  return all;
}

ScheduleCase::ScheduleCase(AttentionSpec spec, const PlanOptions& plan, Strategy strategy,
                           int64_t n)
    : spec(std::move(spec)), plan(plan) {
  const std::vector<Execution> ways = TestExecutions(strategy, plan.world_size, this->spec.q_heads);
  execution = ways[n % ways.size()];
}

BuiltCase::BuiltCase(const ScheduleCase& from)
    : spec(from.spec), mask(spec), plan(MakeShardPlan(spec, from.plan).value()) {
  request = {&spec, &mask, &plan, from.execution};
  ranks = MakeGroupSchedules(request).value();
  const BlockLayout layout(spec);
  for (const RankSchedule& rank : ranks) placements.push_back(PlanArena(rank, layout, 4));
}

std::vector<int64_t> NumbersOf(const RankSchedule& schedule) {
  std::vector<int64_t> numbers;
  const auto number = [](int32_t buffer) { return std::vector<int64_t>{buffer}; };
  AddAll(schedule.buffers, &numbers, NumbersOfBlock);
  AddAll(schedule.inputs, &numbers, number);
  AddAll(schedule.outputs, &numbers, number);
  numbers.push_back(static_cast<int64_t>(schedule.steps.size()));
  for (const Step& step : schedule.steps) {
    AddAll(step.sends, &numbers, NumbersOfTransfer);
    AddAll(step.receives, &numbers, NumbersOfTransfer);
    AddAll(step.tasks, &numbers, NumbersOfTask);
    AddAll(step.ops, &numbers, NumbersOfOp);
  }
  return numbers;
}

std::string Describe(const Mask& mask) {
  std::string text = mask.causal ? " causal" : " open";
  if (mask.alignment == Mask::Alignment::kTopLeft) text += " top-left";
  const auto add = [&](const char* name, const std::optional<int64_t>& value) {
    if (value) absl::StrAppend(&text, " ", name, "=", *value);
  };
  add("left", mask.window_left);
  add("right", mask.window_right);
  add("chunk", mask.chunk);
  add("prefix", mask.prefix);
  add("always", mask.always_visible);
  for (const MaskRange& r : mask.ranges) {
    absl::StrAppend(&text, " range", static_cast<int>(r.kind), "(", r.q_begin, ",", r.q_end, ",",
                    r.k_begin, ",", r.k_end, ")");
  }
  if (!mask.query_heads.empty()) {
    absl::StrAppend(&text, " heads=", absl::StrJoin(mask.query_heads, ","));
  }
  return text;
}

std::string Describe(const ScheduleCase& one) {
  std::string text = absl::StrCat(
      one.spec.operation == Operation::kGradients ? "gradients " : "",
      StrategyName(one.execution.strategy), " ", LayoutName(one.plan.layout),
      " W=", one.plan.world_size, " stripe=", one.plan.stripe, " granule=", one.plan.granule,
      " ulysses=", one.execution.ulysses_degree, " inner=", one.execution.inner_ring_degree,
      " deal=", HeadDealName(one.execution.head_deal), " heads=", one.spec.q_heads, "/",
      one.spec.kv_heads, " values=", one.spec.value_dim(),
      one.spec.deterministic ? " deterministic" : "",
      one.execution.bf16_partials ? " bf16-partials" : "", " sequences");
  for (const Sequence& s : one.spec.sequences) {
    absl::StrAppend(&text, " ", s.q_len, "x", s.kv_len, "m", s.mask);
  }
  for (const Mask& mask : one.spec.masks) text += Describe(mask);
  return text;
}

AttentionSpec SmallSpec(int32_t q_heads, int32_t kv_heads, std::vector<Sequence> sequences,
                        const Mask& mask) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = q_heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = 1;
  spec.sequences = std::move(sequences);
  spec.masks = {mask};
  return spec;
}

Sequence Lengths(int64_t q_len, int64_t kv_len) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  return sequence;
}

std::vector<Mask> TestMasks() {
  using A = Mask::Alignment;
  std::vector<Mask> masks = {MakeMask(false, A::kBottomRight), MakeMask(true, A::kBottomRight),
                             MakeMask(true, A::kTopLeft)};
  Mask window = MakeMask(true, A::kBottomRight);
  window.window_left = 3;
  masks.push_back(window);
  Mask sinks = window;
  sinks.always_visible = 2;
  masks.push_back(sinks);
  Mask both_sides = MakeMask(false, A::kBottomRight);
  both_sides.window_left = 5;
  both_sides.window_right = 2;
  masks.push_back(both_sides);
  Mask self = MakeMask(false, A::kTopLeft);
  self.window_left = 0;
  self.window_right = 0;
  masks.push_back(self);
  Mask chunk = MakeMask(true, A::kBottomRight);
  chunk.chunk = 7;
  masks.push_back(chunk);
  Mask prefix = MakeMask(true, A::kBottomRight);
  prefix.prefix = 5;
  masks.push_back(prefix);
  Mask all = MakeMask(true, A::kTopLeft);
  all.window_left = 9;
  all.window_right = 4;
  all.chunk = 16;
  all.prefix = 6;
  all.always_visible = 3;
  masks.push_back(all);
  using Kind = MaskRange::Kind;
  Mask ranges;
  ranges.ranges = {{0, 9, 0, 5, Kind::kFull},
                   {3, 20, 6, 19, Kind::kCausal},
                   {12, 40, 2, 44, Kind::kInverseCausal},
                   {25, 70, 20, 65, Kind::kBiCausal}};
  masks.push_back(ranges);
  Mask window_in_ranges = window;
  window_in_ranges.window_left = 8;
  window_in_ranges.ranges = {{0, 33, 1, 30, Kind::kFull}, {30, 64, 0, 64, Kind::kCausal}};
  masks.push_back(window_in_ranges);
  return masks;
}

void VaryMasks(int64_t way, AttentionSpec* spec) {
  way %= kMaskWays;
  Mask other;
  other.causal = !spec->masks[0].causal;
  other.window_left = 2;
  Mask third;
  third.ranges = {{0, 30, 3, 28, MaskRange::Kind::kCausal}};
  if (way == 1 || way == 4) {
    spec->masks.push_back(other);
    for (size_t s = 1; s < spec->sequences.size(); s += 2) spec->sequences[s].mask = 1;
  }
  if (way < 2) return;
  Mask named = third;
  for (int32_t head = 0; head < spec->q_heads; ++head) {
    if (way == 3 ? head % 5 == 1 : head % 2 == 1) named.query_heads.push_back(head);
  }
  if (!named.query_heads.empty()) spec->masks.push_back(named);
  if (way == 3 && spec->q_heads > 2) {
    other.query_heads = {2};
    spec->masks.push_back(other);
  }
}

void AskForGradients(bool with_sinks, AttentionSpec* spec) {
  spec->operation = Operation::kGradients;
  for (int32_t head = 0; head < spec->q_heads && with_sinks; ++head) {
    spec->modifiers.sinks.push_back(0.3f * static_cast<float>(head % 5) - 0.5f);
  }
}

void AskForBiasGradient(bool of_heads, AttentionSpec* spec) {
  spec->modifiers.bias = Bias{DataType::kFp32, of_heads ? spec->q_heads : 1};
  spec->gradients.d_bias = true;
}

std::vector<PlanOptions> TestPlans(int32_t world_size) {
  const auto plan = [&](Layout layout, int64_t stripe) {
    return PlanOptions{world_size, layout, stripe, /*granule=*/1};
  };
  return {plan(Layout::kContiguous, 1),        plan(Layout::kZigzag, 1),
          plan(Layout::kStriped, 1),           plan(Layout::kStriped, 3),
          plan(Layout::kZigzagPerSequence, 1), plan(Layout::kByArea, 1)};
}

std::vector<Strategy> TestStrategies() {
  return {Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,
          Strategy::kHalo,       Strategy::kUlysses,     Strategy::kUlyssesRing,
          Strategy::kRingPassQ,  Strategy::kDoubleRing,  Strategy::kTree};
}

bool VisibleByFormula(const Mask& mask, const Sequence& sequence, int64_t q, int64_t k) {
  const bool top_left = mask.alignment == Mask::Alignment::kTopLeft;
  const int64_t p = top_left ? q : q + sequence.kv_len - sequence.q_len;
  const auto chunk_of = [&](int64_t at) {
    return std::floor(static_cast<double>(at) / static_cast<double>(*mask.chunk));
  };
  const bool order = !mask.causal || k <= p || (mask.prefix && k < *mask.prefix);
  const bool local = (!mask.window_left || k >= p - *mask.window_left) &&
                     (!mask.window_right || k <= p + *mask.window_right) &&
                     (!mask.chunk || chunk_of(k) == chunk_of(p));
  const auto inside = [&](const MaskRange& r) {
    using Kind = MaskRange::Kind;
    if (q < r.q_begin || q >= r.q_end || k < r.k_begin || k >= r.k_end) return false;
    const bool before = k - r.k_end <= q - r.q_end, after = k - r.k_begin >= q - r.q_begin;
    return (r.kind == Kind::kFull) || (r.kind == Kind::kCausal && before) ||
           (r.kind == Kind::kInverseCausal && after) ||
           (r.kind == Kind::kBiCausal && before && after);
  };
  const bool listed =
      mask.ranges.empty() || std::any_of(mask.ranges.begin(), mask.ranges.end(), inside);
  return listed && order && (local || (mask.always_visible && k < *mask.always_visible));
}

bool VisibleByFormula(const AttentionSpec& spec, int64_t sequence, int32_t q_head, int64_t q,
                      int64_t k) {
  const Sequence& of = spec.sequences[sequence];
  const auto names = [&](const Mask& mask) {
    return std::count(mask.query_heads.begin(), mask.query_heads.end(), q_head) > 0;
  };
  const Mask* followed = nullptr;
  for (size_t i = of.mask; i < spec.masks.size(); ++i) {
    const Mask& mask = spec.masks[i];
    if (i > static_cast<size_t>(of.mask) && mask.query_heads.empty()) break;
    if (names(mask) || (followed == nullptr && mask.query_heads.empty())) followed = &mask;
  }
  return followed == nullptr ? k < of.kv_len : VisibleByFormula(*followed, of, q, k);
}

}  // namespace annulus
