#include "worker/kernel/tile_loop.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/streaming_writer.h"
#include "worker/kernel/block_sections.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int kMaxPanel = 64;
// Blocks between looks at whether to stop.
constexpr int64_t kBlocksAtOnce = 16;

// Where the state of a (row, head) lies in a block of partials.
class StatePlaces {
 public:
  struct At {
    std::byte *sum, *max, *weight;
  };

  StatePlaces(const BlockLayout& layout, const BlockView& view)
      : view_(view),
        sum_bytes_(layout.value_dim() * kFloat),
        row_bytes_(layout.RowBytes(BlockKind::kPartial, Heads())),
        max_offset_(layout.SecondOffset(BlockKind::kPartial, Heads())),
        weight_offset_(layout.ThirdOffset(BlockKind::kPartial, Heads())) {}

  At Find(int64_t row, int32_t q_head) const {
    const int64_t head = q_head - view_.block.head_begin;
    std::byte* at = view_.data + (row - view_.block.row_begin) * row_bytes_;
    return {at + head * sum_bytes_, at + max_offset_ + head * kFloat,
            at + weight_offset_ + head * kFloat};
  }

 private:
  static constexpr int64_t kFloat = sizeof(float);
  int32_t Heads() const { return view_.block.head_end - view_.block.head_begin; }

  const BlockView& view_;
  const int64_t sum_bytes_, row_bytes_, max_offset_, weight_offset_;
};

int RoundDown(int value, int to) { return value / to * to; }
int RoundUp(int value, int to) { return (value + to - 1) / to * to; }

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
  seen_by_all_ = keys;
  for (int64_t slot = begin; slot < end; ++slot) {
    const int64_t row = slot / group;
    const int32_t q_head = item.kv_head * group + static_cast<int32_t>(slot % group);
    if (q_head < task.head_begin || q_head >= task.head_end) continue;
    absl::Span<const Interval> spans = call_.plan->visible->Of(unit.task, q_head, row);
    while (!spans.empty() && spans.front().end <= keys.begin) spans.remove_prefix(1);
    while (!spans.empty() && spans.back().begin >= keys.end) spans.remove_suffix(1);
    if (spans.empty()) continue;
    rules_.SetRow(bound, tile_.rows, row, q_head);
    TileScratch::Slot& added = s_.slots_[tile_.rows++];
    added.row = row;
    added.q_head = q_head;
    added.spans = spans;
    const Interval only = spans.size() == 1 ? spans[0] : Interval{0, 0};
    seen_by_all_ = Intersect(seen_by_all_, only);
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
  }
  call_.isa->pack_queries({layout.dtype(), rows.data(), tile_.rows, layout.head_dim()},
                          call_.job->scale, s_.queries_);
}

void TileLoop::LoadState(const KernelTask& task) {
  const size_t bytes = sizeof(float) * tile_.value_dim;
  const StatePlaces places(*call_.job->layout, task.out_q);
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    const StatePlaces::At at = places.Find(slot.row, slot.q_head);
    float* sums = s_.sums_ + int64_t{i} * tile_.sum_stride;
    std::memcpy(&s_.max_[i], at.max, sizeof(float));
    std::memcpy(&s_.weight_[i], at.weight, sizeof(float));
    const bool fresh = s_.max_[i] == kMinusInf;  // Its sums mean nothing.
    if (!fresh) std::memcpy(sums, at.sum, bytes);
    std::fill(sums + (fresh ? 0 : tile_.value_dim), sums + tile_.sum_stride, 0.0f);
  }
}

// Sums first: maxima and weights of a row's heads share cache lines, which other threads write to.
void TileLoop::StoreState(const KernelTask& task) {
  const size_t bytes = sizeof(float) * tile_.value_dim;
  const StatePlaces places(*call_.job->layout, task.out_q);
  const bool streamed = call_.job->layout->BlockBytes(task.out_q.block) >= kStreamedBytes;
  StreamingWriter writer;
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    void* to = places.Find(slot.row, slot.q_head).sum;
    const float* from = s_.sums_ + int64_t{i} * tile_.sum_stride;
    if (streamed) {
      writer.Copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  for (int i = 0; i < tile_.rows; ++i) {
    const TileScratch::Slot& slot = s_.slots_[i];
    const StatePlaces::At at = places.Find(slot.row, slot.q_head);
    std::memcpy(at.max, &s_.max_[i], sizeof(float));
    std::memcpy(at.weight, &s_.weight_[i], sizeof(float));
  }
}

bool TileLoop::FindVisible(int64_t first) {
  const Interval block{first, first + kKeyBlock};
  const Interval common = Intersect(seen_by_all_, block);
  masked_ = !(common == block);
  const int groups = (tile_.rows + kRowGroup - 1) / kRowGroup;
  if (!masked_) {
    std::fill_n(s_.group_begin_.begin(), groups, int16_t{0});
    std::fill_n(s_.group_end_.begin(), groups, int16_t{kKeyBlock});
    return true;
  }
  std::fill_n(s_.group_begin_.begin(), groups, int16_t{kKeyBlock});
  std::fill_n(s_.group_end_.begin(), groups, int16_t{0});
  bool any = false;
  gapless_ = true;
  for (int i = 0; i < tile_.rows; ++i) {
    int16_t begin = kKeyBlock, end = 0;
    for (const Interval& span : s_.slots_[i].spans) {
      const Interval seen = Intersect(span, block);
      if (seen.length() == 0) continue;
      gapless_ = gapless_ && (end == 0 || seen.begin - first == end);
      begin = std::min(begin, static_cast<int16_t>(seen.begin - first));
      end = static_cast<int16_t>(seen.end - first);
      any = true;
    }
    s_.begin_[i] = begin;
    s_.end_[i] = end;
    int16_t& group_begin = s_.group_begin_[i / kRowGroup];
    int16_t& group_end = s_.group_end_[i / kRowGroup];
    group_begin = std::min(group_begin, begin);
    group_end = std::max(group_end, end);
  }
  return any;
}

// Puts −inf wherever the softmax reads and a slot does not see, whatever stood there.
void TileLoop::MaskScores(int64_t first) {
  for (int i = 0; i < tile_.rows; ++i) {
    const int group = i / kRowGroup;
    if (s_.group_begin_[group] >= s_.group_end_[group]) continue;
    int at = RoundDown(s_.group_begin_[group], call_.isa->panel);
    const int end = RoundUp(s_.group_end_[group], call_.isa->lanes);
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

// For a block with NaN or infinite values: a key's value is multiplied only for the slots that see
// it.
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

// A row that has seen keys, and no score above −inf, must not look as if it had seen nothing
// (attention/partial.h).
void TileLoop::NoteSeen(int64_t first) {
  std::vector<KeySpan> spans;
  for (int i = 0; i < tile_.rows; ++i) {
    if (s_.max_[i] != kMinusInf) continue;
    bool sees = !masked_ || s_.begin_[i] < s_.end_[i];
    if (sees && rules_.hides_pairs()) {
      FindSeen(i, first, &spans);
      sees = !spans.empty();
    }
    if (sees) s_.max_[i] = std::numeric_limits<float>::lowest();
  }
}

bool TileLoop::CanAttend(bool finite) const {
  if (call_.isa->attend == nullptr || tile_.score_scale != 1) return false;
  if (rules_.change_scores() || rules_.drop_weights()) return false;
  return !masked_ || (finite && gapless_);
}

int TileLoop::Attend(const PackedKeys& packed, const BlockPlace& place, int64_t end) {
  const bool ahead = &packed != passing_;
  const int64_t whole = std::min(end, seen_by_all_.end / kKeyBlock) - place.block;
  const int count = masked_ || !ahead ? 1 : static_cast<int>(std::min(whole, kBlocksAtOnce));
  std::array<PackedBlock, kBlocksAtOnce> blocks;
  for (int i = 0; i < count; ++i) {
    const int64_t pack = ahead ? place.pack + i : 0;
    blocks[i] = {packed.Keys(pack), packed.Values(pack)};
  }
  tile_.row_begin = masked_ ? s_.begin_.data() : nullptr;
  tile_.row_end = masked_ ? s_.end_.data() : nullptr;
  return call_.isa->attend(tile_, blocks.data(), count);
}

int TileLoop::RunBlocks(const KernelTask& task, const BlockPlace& place, int64_t end) {
  const int64_t first = place.block * kKeyBlock;
  if (!FindVisible(first)) return 1;
  const bool ahead = call_.packed != nullptr;
  if (!ahead) passing_->Pack(*place.source, place.kv_head, place.block, 0);
  const PackedKeys& packed = ahead ? *call_.packed : *passing_;
  const int64_t pack = ahead ? place.pack : 0;
  const bool finite = packed.Finite(pack);
  int done = CanAttend(finite) ? Attend(packed, place, end) : 0;
  if (done == 0) {
    tile_.keys = packed.Keys(pack);
    tile_.values = packed.Values(pack);
    RunBlock(task, first, finite);
    done = 1;
  }
  NoteSeen(first);
  return done;
}

void TileLoop::RunBlock(const KernelTask& task, int64_t first, bool finite) {
  call_.isa->score(tile_);
  rules_.SetKeys(task, first);
  if (rules_.change_scores()) call_.isa->change_scores(tile_, rules_.score_rule());
  if (masked_) MaskScores(first);
  call_.isa->softmax(tile_);
  if (rules_.drop_weights()) call_.isa->drop_weights(tile_, rules_.drop_rule());
  if ((masked_ || rules_.hides_pairs()) && !finite) {
    AccumulateRowByRow(first);
  } else {
    call_.isa->accumulate(tile_);
  }
}

void TileLoop::RunUnit(const Phase& phase, const Unit& unit, const Item& item) {
  const KernelTask& task = call_.plan->tasks[unit.task];
  GatherSlots(unit, item);
  if (tile_.rows == 0) return;
  const BlockLayout& layout = *call_.job->layout;
  tile_.head_dim = layout.head_dim();
  tile_.value_dim = layout.value_dim();
  tile_.sum_stride = RoundUp(tile_.value_dim, call_.isa->panel);
  // Changes are to scores as they are meant; and a scale of 0 would make NaN of −inf.
  const auto scale = static_cast<float>(std::fabs(call_.job->scale));
  const bool before = rules_.change_scores() || scale == 0;
  tile_.score_scale = before ? scale : 1;
  tile_.softmax_scale = before ? 1 : scale;
  tile_.queries = s_.queries_;
  tile_.scores = s_.scores_;
  tile_.sums = s_.sums_;
  tile_.max = s_.max_.data();
  tile_.weight = s_.weight_.data();
  tile_.alpha = s_.alpha_.data();
  tile_.group_begin = s_.group_begin_.data();
  tile_.group_end = s_.group_end_.data();
  PackQueries(task);
  LoadState(task);
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (int i = 0; i < tile_.rows; ++i) {
    begin = std::min(begin, s_.slots_[i].spans.front().begin);
    end = std::max(end, s_.slots_[i].spans.back().end);
  }
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
  StoreState(task);
}

}  // namespace annulus
