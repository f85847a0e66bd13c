#include "worker/kernel/cpu/gradient_loop.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/fetch_rows.h"

namespace annulus {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr int64_t kFloat = sizeof(float);

int RoundUp(int value, int to) { return (value + to - 1) / to * to; }

int32_t HeadsOf(const BlockView& view) { return view.block.head_end - view.block.head_begin; }

// The bytes of an accumulator's row; section offsets count from there.
std::byte* RowOf(const BlockLayout& layout, const BlockView& view, int64_t row) {
  return view.data + (row - view.block.row_begin) * layout.RowBytes(view.block.kind, HeadsOf(view));
}

void AddTo(const float* from, int count, float factor, std::byte* to) {
  float* const sums = reinterpret_cast<float*>(to);
  for (int i = 0; i < count; ++i) sums[i] += from[i] * factor;
}

}  // namespace

absl::Status GradientScratch::Reserve(const TileIsa& isa, const BlockLayout& layout) {
  const int dim = layout.head_dim(), value_dim = layout.value_dim();
  q_stride_ = RoundUp(dim, isa.panel);
  v_stride_ = RoundUp(value_dim, isa.panel);
  int64_t used = 0;
  const auto place = [&](int64_t rows, int columns = 1) {
    const int64_t at = used;
    used += (rows * columns + 15) / 16 * 16;
    return at;
  };
  const int64_t at[] = {
      place(PackedKeyFloats(isa, dim)),     place(PackedKeyFloats(isa, value_dim)),
      place(PackedValueFloats(isa, dim)),   place(kTileRows + 1, dim + 64),
      place(kTileRows + 1, value_dim + 64), place(kTileRows, q_stride_),
      place(kTileRows, v_stride_),          place(kTileRows, kKeyBlock),
      place(kTileRows, kKeyBlock),          place(kTileRows, kKeyBlock),
      place(kTileRows, kKeyBlock),          place(layout.pairs().d_bias ? kTileRows : 0, kKeyBlock),
      place(kTileRows, q_stride_),          place(kKeyBlock, q_stride_),
      place(kKeyBlock, v_stride_),          place(isa.parts == 0 ? 0 : kRoundedFloats)};
  RETURN_IF_ERROR(memory_.Reserve(used * kFloat, "working memory of gradients"));
  float** const parts[] = {&keys_,       &values_,  &key_rows_, &queries_, &d_outs_, &query_rows_,
                           &d_out_rows_, &weights_, &d_scores_, &kept_,    &pairs_,  &d_bias_,
                           &dq_,         &dk_,      &dv_,       &rounded_};
  for (size_t i = 0; i < std::size(parts); ++i) *parts[i] = memory_.get() + at[i];
  ones_.fill(1.0f);
  return absl::OkStatus();
}

void GradientLoop::Run(const GradientItem& item) {
  task_number_ = item.task;
  task_ = &call_.tasks[item.task];
  kv_head_ = item.kv_head;
  has_lse_rest_ = layout_.lse_rest(task_->q.block.kind);
  for (int section = 0; section < BlockLayout::kMaxSections; ++section)
    q_places_[section] = PlaceOf(layout_, task_->q, section);
  block_ = {item.key_block * kKeyBlock, (item.key_block + 1) * kKeyBlock};
  PackBlock();
  // If pairs are hidden, the rules need the rows of a tile first.
  const bool set_once = !rules_.hides_pairs();
  if (set_once && (rules_.change_scores() || rules_.drop_weights())) {
    rules_.SetKeys(*task_, block_.begin);
  }
  std::fill_n(s_.dk_, int64_t{kKeyBlock} * s_.q_stride_, 0.0f);
  std::fill_n(s_.dv_, int64_t{kKeyBlock} * s_.v_stride_, 0.0f);
  s_.seen_.fill(0);
  const int64_t end = (item.stripe + 1) * call_.stripe_slots;
  for (int64_t slot = item.stripe * call_.stripe_slots; slot < end; slot += kTileRows) {
    if (call_.control.stopped()) return;
    RunTile({slot, std::min(slot + kTileRows, end)});
  }
  if (task_->out_kv.data != nullptr) StoreKeys();
}

void GradientLoop::PackBlock() {
  const Interval keys = Intersect(block_, {task_->task.k_begin, task_->task.k_end});
  uint8_t present[kKeyBlock] = {};
  std::fill(present + (keys.begin - block_.begin), present + (keys.end - block_.begin), 1);
  const int count = static_cast<int>(keys.end - block_.begin);
  const Block& kv = task_->kv.block;
  const int element = BytesPerElement(layout_.dtype());
  ElementRows rows;
  rows.dtype = layout_.dtype();
  const auto set = [&](int section, int dim) {
    const SectionPlace place = PlaceOf(layout_, task_->kv, section);
    rows.stride = place.stride;
    // Rows before the buffer's first one are not present, so this address is never read directly.
    rows.first = place.first + (block_.begin - kv.row_begin) * place.stride +
                 int64_t{kv_head_ - kv.head_begin} * dim * element;
    FetchRows(rows.first + (keys.begin - block_.begin) * place.stride, dim * element, place.stride,
              keys.end - keys.begin);
  };
  set(0, layout_.head_dim());
  call_.isa->pack_keys(rows, present, count, layout_.head_dim(), s_.keys_);
  keys_finite_ = call_.isa->pack_values(rows, present, count, layout_.head_dim(), s_.key_rows_);
  set(1, layout_.value_dim());
  call_.isa->pack_keys(rows, present, count, layout_.value_dim(), s_.values_);
}

const std::byte* GradientLoop::QueryAt(int section, int64_t row, int32_t q_head,
                                       int64_t head_bytes) const {
  const Block& q = task_->q.block;
  const SectionPlace& place = q_places_[section];
  return place.first + (row - q.row_begin) * place.stride + (q_head - q.head_begin) * head_bytes;
}

void GradientLoop::AddSlot(int place, int64_t row, int32_t q_head,
                           absl::Span<const Interval> spans) {
  std::memcpy(&s_.lse_[rows_], QueryAt(2, row, q_head, kFloat), kFloat);
  if (s_.lse_[rows_] == kMinusInf) return;
  std::memcpy(&s_.delta_[rows_], QueryAt(3, row, q_head, kFloat), kFloat);
  if (has_lse_rest_) std::memcpy(&s_.lse_rest_[rows_], QueryAt(4, row, q_head, kFloat), kFloat);
  const int64_t element = BytesPerElement(layout_.dtype());
  const int64_t bytes[] = {layout_.head_dim() * element, layout_.value_dim() * element};
  for (const int section : {0, 1})
    FetchRows(QueryAt(section, row, q_head, bytes[section]), bytes[section], 0, 1);
  rules_.SetRow(*task_, rows_, row, q_head);
  s_.weights_row_[place] = static_cast<int16_t>(rows_);
  GradientScratch::Slot& slot = s_.slots_[rows_++];
  slot.place = place;
  slot.row = row;
  slot.q_head = q_head;
  slot.spans = spans;
}

void GradientLoop::GatherSlots(Interval slots) {
  const Task& task = task_->task;
  const int group = layout_.group();
  const int64_t begin = std::max(slots.begin, task.q_begin * group);
  const int64_t end = std::min(slots.end, task.q_end * group);
  rows_ = 0;
  s_.weights_row_.fill(-1);
  for (int64_t slot = begin; slot < end; ++slot) {
    const int64_t row = slot / group;
    const int32_t q_head = kv_head_ * group + static_cast<int32_t>(slot % group);
    if (q_head < task.head_begin || q_head >= task.head_end) continue;
    absl::Span<const Interval> spans = call_.visible->Of(task_number_, q_head, row);
    while (!spans.empty() && spans.front().end <= block_.begin) spans.remove_prefix(1);
    while (!spans.empty() && spans.back().begin >= block_.end) spans.remove_suffix(1);
    if (!spans.empty()) AddSlot(static_cast<int>(slot - slots.begin), row, q_head, spans);
  }
}

void GradientLoop::FindHulls() {
  const int groups = (rows_ + kRowGroup - 1) / kRowGroup;
  std::fill_n(s_.group_begin_.begin(), groups, int16_t{kKeyBlock});
  std::fill_n(s_.group_end_.begin(), groups, int16_t{0});
  masked_ = false;
  begin_ = kKeyBlock;
  end_ = 0;
  for (int i = 0; i < rows_; ++i) {
    GradientScratch::Slot& slot = s_.slots_[i];
    const Interval first = Intersect(slot.spans.front(), block_);
    const Interval last = Intersect(slot.spans.back(), block_);
    slot.begin = static_cast<int16_t>(first.begin - block_.begin);
    slot.end = static_cast<int16_t>(last.end - block_.begin);
    masked_ = masked_ || !(first == block_);
    int16_t& begin = s_.group_begin_[i / kRowGroup];
    int16_t& end = s_.group_end_[i / kRowGroup];
    begin = std::min(begin, slot.begin);
    end = std::max(end, slot.end);
    begin_ = std::min(begin_, slot.begin);
    end_ = std::max(end_, slot.end);
  }
}

int GradientLoop::OuterRow(int index) const { return of_bf16() ? s_.slots_[index].place : index; }

bool GradientLoop::PackSection(int section, int dim, double scale, float* queries, float* rows) {
  const int64_t head_bytes = int64_t{dim} * BytesPerElement(layout_.dtype());
  std::array<const std::byte*, kTileRows> at, outer = {};
  for (int i = 0; i < rows_; ++i) {
    at[i] = QueryAt(section, s_.slots_[i].row, s_.slots_[i].q_head, head_bytes);
    outer[OuterRow(i)] = at[i];
  }
  call_.isa->pack_queries({layout_.dtype(), at.data(), rows_, dim}, scale, queries);
  return call_.isa->gradients->pack_rows(
      {layout_.dtype(), outer.data(), OuterRow(rows_ - 1) + 1, dim}, rows);
}

void GradientLoop::PackTile() {
  queries_finite_ =
      PackSection(0, layout_.head_dim(), call_.job->scale, s_.queries_, s_.query_rows_);
  d_outs_finite_ = PackSection(1, layout_.value_dim(), 1, s_.d_outs_, s_.d_out_rows_);
}

void GradientLoop::AddToKeys(const float* weights, const float* rows, bool finite, int dim,
                             float* sums, int sum_stride) {
  OuterProduct product;
  product.rows = OuterRow(rows_ - 1) + 1;
  product.weights_row = s_.weights_row_.data();
  product.dim = dim;
  product.key_begin = begin_;
  product.key_end = end_;
  product.weights = weights;
  product.right = rows;
  product.sums = sums;
  product.sum_stride = sum_stride;
  product.rounded = s_.rounded_;
  hides_some() && !finite ? AddToKeysOneByOne(product) : call_.isa->gradients->add_outer(product);
}

bool GradientLoop::Sees(int slot, int key) const {
  if (rules_.hides_pairs() && s_.pairs_[slot * kKeyBlock + key] == kMinusInf) return false;
  const absl::Span<const Interval> spans = s_.slots_[slot].spans;
  const int64_t at = block_.begin + key;
  return std::any_of(spans.begin(), spans.end(),
                     [&](const Interval& span) { return span.begin <= at && at < span.end; });
}

// For queries with NaN or infinity: each is multiplied only with keys that it sees. The loop goes
// key by key, with zeros for slots that do not see the key, so the bits of other slots are the
// same.
void GradientLoop::AddToKeysOneByOne(const OuterProduct& whole) {
  std::vector<float> right(int64_t{kTileRows} * RoundUp(whole.dim, call_.isa->panel));
  std::array<uint8_t, kTileRows> seen = {};
  OuterProduct one = whole;
  one.right = right.data();
  for (int key = begin_; key < end_; ++key) {
    for (int i = 0; i < rows_; ++i) seen[OuterRow(i)] = Sees(i, key) ? 1 : 0;
    call_.isa->gradients->keep_seen(whole.right, whole.dim, seen.data(), right.data());
    one.key_begin = key;
    one.key_end = key + 1;
    call_.isa->gradients->add_outer(one);
  }
}

std::byte* GradientLoop::OutQueryAt(const GradientScratch::Slot& slot) const {
  const int64_t head = slot.q_head - task_->out_q.block.head_begin;
  return RowOf(layout_, task_->out_q, slot.row) + head * layout_.head_dim() * kFloat;
}

void GradientLoop::AddToQueries() {
  const int dim = layout_.head_dim();
  for (int i = 0; i < rows_; ++i) FetchRows(OutQueryAt(s_.slots_[i]), dim * kFloat, 0, 1);
  std::fill_n(s_.dq_, int64_t{rows_} * s_.q_stride_, 0.0f);
  TileBlock product;
  product.rows = rows_;
  product.head_dim = product.value_dim = dim;
  product.values = s_.key_rows_;
  product.scores = s_.d_scores_;
  product.sums = s_.dq_;
  product.sum_stride = s_.q_stride_;
  product.alpha = s_.ones_.data();
  product.group_begin = s_.group_begin_.data();
  product.group_end = s_.group_end_.data();
  if (!hides_some() || keys_finite_) {
    call_.isa->accumulate(product);
  } else {  // Keys with NaN or infinity are multiplied only for slots that see them.
    std::vector<KeySpan> spans;
    for (int i = 0; i < rows_; ++i) {
      spans.clear();
      for (const Interval& span : s_.slots_[i].spans) {
        const Interval seen = Intersect(span, block_);
        rules_.AddSeen(i,
                       {static_cast<int16_t>(seen.begin - block_.begin),
                        static_cast<int16_t>(seen.end - block_.begin)},
                       &spans);
      }
      if (spans.empty()) continue;
      TileBlock row = product;
      row.rows = 1;
      row.scores = s_.d_scores_ + int64_t{i} * kKeyBlock;
      row.sums = s_.dq_ + int64_t{i} * s_.q_stride_;
      call_.isa->accumulate_row(row, spans.data(), static_cast<int>(spans.size()));
    }
  }
  for (int i = 0; i < rows_; ++i)
    AddTo(s_.dq_ + int64_t{i} * s_.q_stride_, dim, SumScale(), OutQueryAt(s_.slots_[i]));
}

void GradientLoop::AddToBias() {
  const BlockView& out = task_->out_bias;
  const int64_t head_bytes = layout_.pairs().width * kFloat;
  const bool of_all = layout_.pairs().bias_heads == 1;
  for (int i = 0; i < rows_; ++i) {
    const GradientScratch::Slot& slot = s_.slots_[i];
    const int64_t head = of_all ? 0 : slot.q_head - out.block.head_begin;
    std::byte* const row = RowOf(layout_, out, slot.row) + head * head_bytes;
    for (const Interval& span : slot.spans) {
      const Interval seen = Intersect(span, block_);
      const KeySpan keys{static_cast<int16_t>(seen.begin - block_.begin),
                         static_cast<int16_t>(seen.end - block_.begin)};
      rules_.ForEachColumnRun(i, keys, [&](int first, int64_t column, int count) {
        AddTo(s_.d_bias_ + i * kKeyBlock + first, count, 1, row + column * kFloat);
      });
    }
  }
}

void GradientLoop::RunTile(Interval slots) {
  GatherSlots(slots);
  if (rows_ > 0) {
    if (rules_.hides_pairs()) rules_.SetKeys(*task_, block_.begin);
    FindHulls();
    PackTile();
    MakeWeights();
    if (!masked_) s_.seen_.fill(1);
    if (task_->out_kv.data != nullptr) {
      AddToKeys(s_.weights_, s_.d_out_rows_, d_outs_finite_, layout_.value_dim(), s_.dv_,
                s_.v_stride_);
      AddToKeys(s_.d_scores_, s_.query_rows_, queries_finite_, layout_.head_dim(), s_.dk_,
                s_.q_stride_);
    }
    if (task_->out_q.data != nullptr) AddToQueries();
    if (adds_to_bias()) AddToBias();
  }
  call_.control.Count(1);
}

void GradientLoop::StoreKeys() {
  const BlockView& out = task_->out_kv;
  const int64_t head = kv_head_ - out.block.head_begin;
  const int64_t second = layout_.SecondOffset(BlockKind::kDkv, HeadsOf(out));
  StoreSums({s_.dk_, s_.q_stride_, layout_.head_dim(), SumScale()},
            head * layout_.head_dim() * kFloat);
  StoreSums({s_.dv_, s_.v_stride_, layout_.value_dim(), 1},
            second + head * layout_.value_dim() * kFloat);
}

// A key that no slot sees keeps its bits.
void GradientLoop::StoreSums(const KeySums& of, int64_t offset) {
  constexpr int kKeys = 16;
  const auto turn = call_.isa->gradients->sums_of_keys;
  alignas(64) float turned[kKeys * kMaxHeadDim];
  const auto out_at = [&](int key) {
    return RowOf(layout_, task_->out_kv, block_.begin + key) + offset;
  };
  const auto fetch = [&](int first) {
    for (int key = first; key < std::min(first + kKeys, kKeyBlock); ++key)
      if (s_.seen_[key] != 0) FetchRows(out_at(key), of.dim * kFloat, 0, 1);
  };
  fetch(0);
  for (int first = 0; first < kKeyBlock; first += kKeys) {
    fetch(first + kKeys);
    const float* from = turn == nullptr ? of.sums + int64_t{first} * of.stride : turned;
    if (turn != nullptr) turn(of.sums, first, of.dim, turned, of.stride);
    for (int key = first; key < first + kKeys; ++key, from += of.stride) {
      if (s_.seen_[key] == 0) continue;
      AddTo(from, of.dim, of.factor, out_at(key));
    }
  }
}

}  // namespace annulus
