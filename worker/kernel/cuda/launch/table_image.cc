#include "worker/kernel/cuda/launch/table_image.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/numerics/dropout.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

int32_t Narrow(int64_t value) { return static_cast<int32_t>(value); }

// A cap below the smallest normal number gives scores that fp32 arithmetic here cannot tell from 0.
void SetCap(double cap, ChangeRule* rule) {
  rule->cap = std::max(static_cast<float>(cap), std::numeric_limits<float>::min());
  const double per_cap = 1.0 / rule->cap;
  rule->per_cap_high = static_cast<float>(per_cap);
  if (rule->per_cap_high >= per_cap) rule->per_cap_high = std::nextafter(rule->per_cap_high, 0.0f);
  rule->per_cap_low = static_cast<float>(per_cap - rule->per_cap_high);
}

// Appends `more` entries, to be set by the caller, and returns the first.
template <class T>
T* Grown(int64_t more, std::vector<T>* list) {
  list->resize(list->size() + more);
  return list->data() + list->size() - more;
}

// Writes the sweep's span for each of `rows` rows, `apart` entries from one to the next.
void PutSpans(const Sweep& sweep, int64_t skip, int64_t rows, int64_t apart, KeySpan32* to) {
  const Interval first = sweep.At(skip);
  const int32_t begin = Narrow(first.begin), end = Narrow(first.end);
  const int32_t begin_step = Narrow(sweep.begin_step), end_step = Narrow(sweep.end_step);
  for (int32_t i = 0; i < Narrow(rows); ++i, to += apart)
    *to = {begin + i * begin_step, end + i * end_step};
}

}  // namespace

Element ElementOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFp32:
      return Element::kFp32;
    case DataType::kFp16:
      return Element::kFp16;
    case DataType::kBf16:
      return Element::kBf16;
    default:
      return Element::kNone;
  }
}

ChangeRule ChangeRuleOf(const KernelJob& job) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  const BiasAndMaskInputs& pairs = job.layout->pairs();
  ChangeRule rule = {};
  if (modifiers.soft_cap) SetCap(*modifiers.soft_cap, &rule);
  rule.alibi = !modifiers.alibi_slopes.empty();
  rule.bias = pairs.has_bias;
  rule.bits = pairs.has_bits;
  rule.offset = pairs.has_offset;
  rule.bias_per_head = pairs.bias_heads != 1;
  rule.bits_per_head = pairs.bit_heads != 1;
  rule.bias_type = ElementOf(pairs.bias_dtype);
  rule.bias_bytes = pairs.bias_bytes();
  rule.bit_bytes = pairs.bit_bytes();
  if (!job.spec->dropout) return rule;
  const DropoutRule dropout(*job.spec->dropout);
  rule.drop_below = dropout.threshold();
  rule.seed[0] = dropout.key()[0];
  rule.seed[1] = dropout.key()[1];
  return rule;
}

bool IsWhole(const BlockAt& block, int64_t offset, int64_t head_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(block.data);
  return (address | static_cast<uintptr_t>(block.row_bytes | offset | head_bytes)) % 16 == 0;
}

BlockAt BlockAtOf(const BlockLayout& layout, const BlockView& view) {
  const Block& block = view.block;
  return {view.data, layout.RowBytes(block.kind, block.head_end - block.head_begin),
          Narrow(block.row_begin), block.head_begin};
}

void TableLists::Clear() {
  items.clear();
  units.clear();
  firsts.clear();
  unit_runs.clear();
  key_runs.clear();
  spans.clear();
}

TableImage::TableImage(const KernelJob& job, TableLists* lists)
    : job_(job), change_(ChangeRuleOf(job)), changes_(KindOf(job).changes), lists_(*lists) {
  lists_.Clear();
  for (int32_t head = 0; head < job.mask->q_heads(); ++head)
    class_of_head_.push_back(job.mask->ClassOf(head));
  slopes_ = job.spec->modifiers.alibi_slopes;
}

int32_t TableImage::RunsOf(const RowMap& rows) {
  const auto [at, added] = runs_of_map_.try_emplace(&rows, Narrow(runs_.size()));
  if (!added) return at->second;
  int64_t local = 0;
  for (const RowRange& range : rows.ranges()) {
    runs_.push_back(
        {Narrow(local), Narrow(range.begin), Narrow(range.block), Narrow(range.stride)});
    local += range.block * range.count;
  }
  return at->second;
}

void TableImage::AddSpans(const KernelTask& bound, const TaskPiece& piece,
                          const VisibleRows& visible) {
  const size_t at = classes_.size();
  classes_.resize(at + job_.mask->classes(), 0);
  job_.mask->ForEachClass(bound.task.head_begin, bound.task.head_end, [&](int32_t head, int32_t) {
    classes_[at + job_.mask->ClassOf(head)] = Narrow(lists_.firsts.size());
    const Interval rows = {piece.q_begin, piece.q_end};
    int32_t* first = Grown(rows.length() + 1, &lists_.firsts);
    int32_t next = Narrow(lists_.spans.size());
    KeySpan32* const spans = Grown(visible.Spans(piece.task, head, rows), &lists_.spans) - next;
    visible.ForEach(piece.task, head, rows,
                    [&](Interval part, absl::Span<const Sweep> sweeps, int64_t skip) {
                      const auto each = Narrow(sweeps.size());
                      for (int64_t i = 0; i < part.length(); ++i)
                        first[i] = next + Narrow(i) * each;
                      for (int32_t s = 0; s < each; ++s)
                        PutSpans(sweeps[s], skip, part.length(), each, spans + next + s);
                      first += part.length();
                      next += Narrow(part.length()) * each;
                    });
    *first = next;
  });
}

void TableImage::AddTask(const KernelTask& bound, const TaskPiece& piece,
                         const VisibleRows& visible) {
  const BlockLayout& layout = *job_.layout;
  const Task& task = bound.task;
  const auto heads = [](const BlockView& view) {
    return view.block.head_end - view.block.head_begin;
  };
  ForwardTask entry = {};
  entry.q = BlockAtOf(layout, bound.q);
  entry.kv = BlockAtOf(layout, bound.kv);
  entry.out = BlockAtOf(layout, bound.out_q);
  entry.value_offset = layout.SecondOffset(BlockKind::kKv, heads(bound.kv));
  entry.max_offset = layout.SecondOffset(BlockKind::kPartial, heads(bound.out_q));
  entry.weight_offset = layout.ThirdOffset(BlockKind::kPartial, heads(bound.out_q));
  if (layout.pairs().any()) {
    entry.pairs = BlockAtOf(layout, bound.pairs);
    entry.bits_offset = layout.SecondOffset(BlockKind::kPairs, heads(bound.pairs));
    entry.shift_offset = layout.ThirdOffset(BlockKind::kPairs, heads(bound.pairs));
  }
  entry.q_begin = Narrow(piece.q_begin);
  entry.q_end = Narrow(piece.q_end);
  entry.k_begin = Narrow(task.k_begin);
  entry.k_end = Narrow(task.k_end);
  entry.head_begin = task.head_begin;
  entry.head_end = task.head_end;
  entry.class_at = -1;
  if (task.coverage != Coverage::kFull) {
    entry.class_at = Narrow(classes_.size());
    AddSpans(bound, piece, visible);
  }
  entry.q_run = RunsOf(*bound.q_rows);
  entry.q_runs = Narrow(bound.q_rows->ranges().size());
  entry.k_run = RunsOf(*bound.k_rows);
  entry.k_runs = Narrow(bound.k_rows->ranges().size());
  const int64_t element = BytesPerElement(layout.dtype());
  const int64_t key_bytes = layout.head_dim() * element;
  const int64_t value_bytes = layout.value_dim() * element;
  entry.q_whole = IsWhole(entry.q, 0, key_bytes);
  entry.k_whole = IsWhole(entry.kv, 0, key_bytes);
  entry.v_whole = IsWhole(entry.kv, entry.value_offset, value_bytes);
  tasks_.push_back(entry);
  if (!changes_) return;
  ForEachSequence(*job_.mask, *bound.q_rows, {piece.q_begin, piece.q_end},
                  [&](int64_t sequence) { sequences_.insert(sequence); });
}

void TableImage::AddItem(ForwardItem item, absl::Span<const int32_t> units) {
  item.unit_begin = Narrow(lists_.units.size());
  lists_.units.insert(lists_.units.end(), units.begin(), units.end());
  item.unit_end = Narrow(lists_.units.size());
  lists_.items.push_back(item);
}

void TableImage::AddRuns(absl::Span<const KeyTileRun> runs) {
  if (lists_.unit_runs.empty()) lists_.unit_runs.push_back(0);
  lists_.key_runs.insert(lists_.key_runs.end(), runs.begin(), runs.end());
  lists_.unit_runs.push_back(Narrow(lists_.key_runs.size()));
}

ForwardArgs TableImage::args() const {
  const BlockLayout& layout = *job_.layout;
  ForwardArgs args = {};
  args.change = change_;
  args.head_dim = layout.head_dim();
  args.value_dim = layout.value_dim();
  args.group = layout.group();
  args.classes = job_.mask->classes();
  args.sequences = Narrow(static_cast<int64_t>(sequences_.size()));
  args.items = Narrow(lists_.items.size());
  args.scale = static_cast<float>(job_.scale);
  args.power_scale = args.scale * kLog2e;
  return args;
}

void TableImage::AddSequences(ForwardTables* at, std::vector<std::byte>* bytes) const {
  const MaskMap& mask = *job_.mask;
  std::vector<int64_t> numbers(sequences_.begin(), sequences_.end());
  std::sort(numbers.begin(), numbers.end());
  std::vector<SequenceAt> sequences;
  std::vector<int32_t> shifts, has_bits;
  for (const int64_t s : numbers) {
    const int64_t row = mask.QueryBegin(s);
    sequences.push_back({Narrow(row), Narrow(mask.KeyBegin(s)), Narrow(s)});
    for (int32_t c = 0; c < mask.classes(); ++c) {
      const int32_t head = mask.HeadOfClass(c);
      if (change_.alibi) shifts.push_back(Narrow(mask.Position(head, row) - mask.KeyBegin(s)));
      if (change_.bits) has_bits.push_back(mask.HasBits(head, s) ? 1 : 0);
    }
  }
  at->sequences = AppendTable(sequences, bytes);
  at->shifts = AppendTable(shifts, bytes);
  at->has_bits = AppendTable(has_bits, bytes);
}

void TableImage::Take(ForwardTables* at, std::vector<std::byte>* bytes) {
  bytes->clear();
  at->tasks = AppendTable(tasks_, bytes);
  at->items = AppendTable(lists_.items, bytes);
  at->units = AppendTable(lists_.units, bytes);
  at->class_of_head = AppendTable(class_of_head_, bytes);
  at->classes = AppendTable(classes_, bytes);
  at->firsts = AppendTable(lists_.firsts, bytes);
  at->spans = AppendTable(lists_.spans, bytes);
  at->runs = AppendTable(runs_, bytes);
  AddSequences(at, bytes);
  at->slopes = AppendTable(slopes_, bytes);
  at->unit_runs = AppendTable(lists_.unit_runs, bytes);
  at->key_runs = AppendTable(lists_.key_runs, bytes);
  at->next_item = AppendTable(next_item_, bytes);
  if (maps_ > 0) {
    at->maps = (static_cast<int64_t>(bytes->size()) + kMapBytes - 1) / kMapBytes * kMapBytes;
    bytes->resize(at->maps + maps_ * kMapBytes);
  }
}

}  // namespace annulus::cuda
