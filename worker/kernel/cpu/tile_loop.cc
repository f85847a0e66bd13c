#include "worker/kernel/cpu/tile_loop.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/fetch_rows.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kMaxPanel = 64;

template <size_t COUNT>
constexpr std::array<int16_t, COUNT> AllOf(int16_t value) {
  std::array<int16_t, COUNT> all = {};
  for (int16_t& one : all) one = value;
  return all;
}
// The hulls of row groups for a block that is not masked.
constexpr auto kWholeBegin = AllOf<kMostTileRows / kRowGroup>(0);
constexpr auto kWholeEnd = AllOf<kMostTileRows / kRowGroup>(kKeyBlock);

int RoundDown(int value, int to) { return value / to * to; }
int RoundUp(int value, int to) { return (value + to - 1) / to * to; }

// The intervals of sorted `spans` that meet `keys`.
absl::Span<const Interval> Meeting(absl::Span<const Interval> spans, Interval keys) {
  while (!spans.empty() && spans.front().end <= keys.begin) spans.remove_prefix(1);
  while (!spans.empty() && spans.back().begin >= keys.end) spans.remove_suffix(1);
  return spans;
}

}  // namespace

TileScratch::TileScratch()
    : memory_((kMostTileRows * (kMaxHeadDim + 1) + kMostTileRows * kKeyBlock +
               kMostTileRows * (kMaxHeadDim + kMaxPanel)) /
              16) {
  queries_ = memory_.data()->value;
  scores_ = queries_ + kMostTileRows * (kMaxHeadDim + 1);
  sums_ = scores_ + kMostTileRows * kKeyBlock;
}

void TileLoop::Run(const Phase& phase, const Item& item) {
  for (int32_t unit : item.units) {
    if (call_.control.stopped()) return;
    RunUnit(phase, phase.units[unit], item);
  }
}

void TileLoop::GatherSlots(const Unit& unit, const Item& item) {
  const KernelTask& bound = call_.plan->tasks[unit.task];
  const Task& task = bound.task;
  const int group = call_.plan->group;
  const Interval keys{unit.block_begin * kKeyBlock, unit.block_end * kKeyBlock};
  const int64_t begin = std::max(item.tile * kTileRows, task.q_begin * group);
  const int64_t end = std::min((item.tile + item.tiles) * kTileRows, task.q_end * group);
  tile_.rows = 0;
  s_.unseen_.clear();
  seen_by_all_ = keys;
  single_spans_ = true;
  const CallVisibility& visible = *call_.plan->visible;
  const bool alike = visible.SameForAll(unit.task);
  absl::Span<const Interval> spans;
  if (alike) spans = Meeting(visible.Of(unit.task, task.head_begin, task.q_begin), keys);
  int64_t row = begin / group;
  auto in_group = static_cast<int>(begin % group);
  for (int64_t slot = begin; slot < end; ++slot, ++in_group) {
    if (in_group == group) ++row, in_group = 0;
    const int32_t q_head = item.kv_head * group + in_group;
    if (q_head < task.head_begin || q_head >= task.head_end) continue;
    if (!alike) spans = Meeting(visible.Of(unit.task, q_head, row), keys);
    if (spans.empty()) {
      if (BeginsWith(unit, task, row) || EndsWith(unit, task, row))
        s_.unseen_.push_back({row, q_head, {}});
      continue;
    }
    if (rules_.by_row()) rules_.SetRow(bound, tile_.rows, row, q_head);
    s_.key_begin_[tile_.rows] = static_cast<int32_t>(spans.front().begin);
    s_.key_end_[tile_.rows] = static_cast<int32_t>(spans.back().end);
    TileScratch::Slot& added = s_.slots_[tile_.rows++];
    added.row = row;
    added.q_head = q_head;
    added.spans = spans;
    const bool single = spans.size() == 1;
    single_spans_ = single_spans_ && single;
    seen_by_all_ = Intersect(seen_by_all_, single ? spans[0] : Interval{0, 0});
  }
}

void TileLoop::PackQueries(const KernelTask& task) {
  const BlockLayout& layout = *call_.job->layout;
  const Block& block = task.q.block;
  const SectionPlace place = PlaceOf(layout, task.q, 0);
  const int64_t head_bytes = int64_t{layout.head_dim()} * BytesPerElement(layout.dtype());
  std::array<const std::byte*, kMostTileRows> rows;
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    rows[i] = place.first + (slot.row - block.row_begin) * place.stride +
              (slot.q_head - block.head_begin) * head_bytes;
    FetchRows(rows[i], head_bytes, 0, 1);
  }
  call_.isa->pack_queries({layout.dtype(), rows.data(), tile_.rows, layout.head_dim()},
                          call_.job->scale, s_.queries_);
}

void TileLoop::FindOfSingleSpans(int64_t first, TileScratch::Seen* seen) const {
  const auto from = static_cast<int32_t>(first);
  for (int i = 0; i < tile_.rows; ++i) {
    const int32_t begin = std::clamp(s_.key_begin_[i] - from, 0, kKeyBlock);
    const int32_t end = std::clamp(s_.key_end_[i] - from, 0, kKeyBlock);
    seen->begin[i] = static_cast<int16_t>(begin < end ? begin : kKeyBlock);
    seen->end[i] = static_cast<int16_t>(begin < end ? end : 0);
  }
}

void TileLoop::FindOfSpans(int64_t first, TileScratch::Seen* seen, View* view) const {
  for (int i = 0; i < tile_.rows; ++i) {
    int16_t begin = kKeyBlock, end = 0;
    for (const Interval& span : s_.slots_[i].spans) {
      const Interval keys = Intersect(span, {first, first + kKeyBlock});
      if (keys.length() == 0) continue;
      view->gapless = view->gapless && (end == 0 || keys.begin - first == end);
      begin = std::min(begin, static_cast<int16_t>(keys.begin - first));
      end = static_cast<int16_t>(keys.end - first);
    }
    seen->begin[i] = begin;
    seen->end[i] = end;
  }
}

TileLoop::View TileLoop::FindVisible(int64_t first, TileScratch::Seen* seen) const {
  View view;
  const Interval block{first, first + kKeyBlock};
  view.masked = !(Intersect(seen_by_all_, block) == block);
  view.any = !view.masked;
  if (!view.masked) return view;
  single_spans_ ? FindOfSingleSpans(first, seen) : FindOfSpans(first, seen, &view);
  for (int group = 0, row = 0; row < tile_.rows; ++group) {
    int16_t begin = kKeyBlock, end = 0;
    for (const int last = std::min(tile_.rows, row + kRowGroup); row < last; ++row) {
      begin = std::min(begin, seen->begin[row]);
      end = std::max(end, seen->end[row]);
    }
    seen->group_begin[group] = begin;
    seen->group_end[group] = end;
    view.any = view.any || begin < end;
  }
  return view;
}

// Puts −inf for masked pairs wherever the softmax reads.
void TileLoop::MaskScores(int64_t first) {
  for (int i = 0; i < tile_.rows; ++i) {
    const int group = i / kRowGroup;
    if (tile_.group_begin[group] >= tile_.group_end[group]) continue;
    int at = RoundDown(tile_.group_begin[group], call_.isa->panel);
    const int end = RoundUp(tile_.group_end[group], call_.isa->lanes);
    float* scores = s_.scores_ + int64_t{i} * kKeyBlock;
    for (const Interval& span : s_.slots_[i].spans) {
      const Interval seen = Intersect(span, {first, first + kKeyBlock});
      if (seen.length() == 0) continue;
      const int seen_begin = static_cast<int>(seen.begin - first);
      if (at < seen_begin) std::fill(scores + at, scores + seen_begin, kMinusInf);
      at = static_cast<int>(seen.end - first);
    }
    if (at < end) std::fill(scores + at, scores + end, kMinusInf);
  }
}

// The keys of the block that a slot sees.
void TileLoop::FindSeen(int slot, int64_t first, std::vector<KeySpan>* spans) const {
  spans->clear();
  for (const Interval& span : s_.slots_[slot].spans) {
    const Interval seen = Intersect(span, {first, first + kKeyBlock});
    if (seen.length() == 0) continue;
    rules_.AddSeen(
        slot, {static_cast<int16_t>(seen.begin - first), static_cast<int16_t>(seen.end - first)},
        spans);
  }
}

// For a block with NaN or infinite values: a key's value is multiplied only for slots that see it.
void TileLoop::AccumulateRowByRow(int64_t first) {
  std::vector<KeySpan> spans;
  for (int i = 0; i < tile_.rows; ++i) {
    FindSeen(i, first, &spans);
    if (spans.empty()) continue;
    TileBlock row = tile_;
    row.rows = 1;
    row.scores = s_.scores_ + int64_t{i} * kKeyBlock;
    row.sums = s_.sums_ + int64_t{i} * tile_.sum_stride;
    row.alpha = &s_.alpha_[i];
    call_.isa->accumulate_row(row, spans.data(), static_cast<int>(spans.size()));
  }
}

// A row that has seen keys, but no score above −inf, must differ from one that has seen none
// (attention/numerics/partial.h).
void TileLoop::NoteSeen(int64_t first, const PackedBlock* blocks, int count) {
  bool some = false;
  for (int i = 0; i < tile_.rows; ++i) some |= s_.max_[i] == kMinusInf;
  if (!some) return;
  std::vector<KeySpan> spans;
  for (int i = 0; i < tile_.rows; ++i) {
    if (s_.max_[i] != kMinusInf) continue;
    bool sees = false;
    for (const PackedBlock* block = blocks; block < blocks + count; ++block)
      sees = sees || block->row_begin == nullptr || block->row_begin[i] < block->row_end[i];
    if (sees && rules_.hides_pairs()) {
      FindSeen(i, first, &spans);
      sees = !spans.empty();
    }
    if (sees) s_.max_[i] = std::numeric_limits<float>::lowest();
  }
}

bool TileLoop::CanAttend() const {
  return call_.isa->attend != nullptr && tile_.score_scale == 1 && !rules_.change_scores() &&
         !rules_.drop_weights();
}

int TileLoop::RunBlocks(const KernelTask& task, const BlockPlace& place, int64_t end) {
  const bool ahead = call_.packed != nullptr, attends = CanAttend();
  const PackMemory& packed = ahead ? call_.packed->memory() : kept_->keys();
  const int64_t at_once = ahead ? kBlocksAtOnce : std::min(kBlocksAtOnce, kept_->places());
  const int64_t most = attends ? std::min(at_once, end - place.block) : 1;
  std::array<PackedBlock, kBlocksAtOnce> blocks;
  const int64_t first = place.block * kKeyBlock;
  bool finite = true, masked = false;
  int count = 0;
  for (; count < most; ++count) {
    TileScratch::Seen& seen = s_.seen_[count];
    const View view = FindVisible(first + count * kKeyBlock, &seen);
    if (!view.any && count == 0) return 1;
    if (!view.any) break;
    const int64_t pack = ahead ? call_.packed->SlotOf(place.pack + count)
                               : kept_->Meet(*place.source, place.kv_head, place.block + count);
    PackedBlock& block = blocks[count] = {packed.Keys(pack), packed.Values(pack),
                                          kWholeBegin.data(), kWholeEnd.data()};
    if (view.masked) {
      block.group_begin = seen.group_begin.data();
      block.group_end = seen.group_end.data();
      block.row_begin = seen.begin.data();
      block.row_end = seen.end.data();
    }
    const bool whole = packed.Finite(pack);
    if (count == 0) finite = whole, masked = view.masked;
    if (!attends || (view.masked && !(whole && view.gapless))) break;
  }
  // `count` stays 0 unless `attends`: the loop above breaks before its first increment. So a null
  // `attend` is never called. done == 0 means that `attend` took no block.
  int done = count > 0 ? call_.isa->attend(tile_, blocks.data(), count) : 0;
  if (done == 0) {
    tile_.keys = blocks[0].keys;
    tile_.values = blocks[0].values;
    tile_.group_begin = blocks[0].group_begin;
    tile_.group_end = blocks[0].group_end;
    RunBlock(task, first, masked, finite);
    done = 1;
  }
  NoteSeen(first, blocks.data(), done);
  return done;
}

void TileLoop::RunBlock(const KernelTask& task, int64_t first, bool masked, bool finite) {
  ClearUnseen();
  call_.isa->score(tile_);
  rules_.SetKeys(task, first);
  if (rules_.change_scores()) call_.isa->change_scores(tile_, rules_.score_rule());
  if (masked) MaskScores(first);
  call_.isa->softmax(tile_);
  if (rules_.drop_weights()) call_.isa->drop_weights(tile_, rules_.drop_rule());
  if ((masked || rules_.hides_pairs()) && !finite) {
    AccumulateRowByRow(first);
  } else {
    call_.isa->accumulate(tile_);
  }
}

void TileLoop::RunUnit(const Phase& phase, const Unit& unit, const Item& item) {
  const KernelTask& task = call_.plan->tasks[unit.task];
  GatherSlots(unit, item);
  BeginAndEndUnseen(task, unit);
  if (tile_.rows == 0) return;
  const BlockLayout& layout = *call_.job->layout;
  tile_.head_dim = layout.head_dim();
  tile_.value_dim = layout.value_dim();
  tile_.sum_stride = RoundUp(tile_.value_dim, call_.isa->panel);
  // Score modifiers take scaled scores. A scale of 0 in the softmax would turn −inf into NaN.
  const auto scale = static_cast<float>(std::fabs(call_.job->scale));
  const bool before = rules_.change_scores() || scale == 0;
  tile_.score_scale = before ? scale : 1;
  tile_.softmax_scale = before ? 1 : scale;
  tile_.slack = layout.max_logit() ? 0 : call_.isa->slack;
  tile_.queries = s_.queries_;
  tile_.scores = s_.scores_;
  tile_.sums = s_.sums_;
  tile_.max = s_.max_.data();
  tile_.weight = s_.weight_.data();
  tile_.alpha = s_.alpha_.data();
  PackQueries(task);
  LoadState(task, unit);
  const int64_t begin =
      *std::min_element(s_.key_begin_.begin(), s_.key_begin_.begin() + tile_.rows);
  const int64_t end = *std::max_element(s_.key_end_.begin(), s_.key_end_.begin() + tile_.rows);
  const int64_t block_begin = std::max(unit.block_begin, begin / kKeyBlock);
  const int64_t block_end = std::min(unit.block_end, (end + kKeyBlock - 1) / kKeyBlock);
  const PackedSource& packed = phase.packed[unit.packed];
  for (int64_t block = block_begin; block < block_end;) {
    if (call_.control.stopped()) return;
    const int count = RunBlocks(task,
                                {&call_.plan->sources[packed.source], item.kv_head, block,
                                 phase.PackOf(packed, item.kv_head, block)},
                                block_end);
    call_.control.Count(count);
    block += count;
  }
  StoreState(task, unit);
  EndRows(task, unit);
}

}  // namespace annulus
