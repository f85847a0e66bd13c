#include "attention/mask.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

// Above every row number, and small enough for sums of a few never to overflow.
constexpr int64_t kFar = int64_t{1} << 60;

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

Intervals IntersectAll(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (const Interval& x : a) {
    for (const Interval& y : b) {
      const Interval both = Intersect(x, y);
      if (both.length() > 0) out.push_back(both);
    }
  }
  return out;
}

// Keys of one range that row `row` sees: the causal edge ends in the range's last corner, the
// inverse edge starts in its first.
Interval KeysOfRange(const MaskRange& range, int64_t row) {
  if (row < range.q_begin || row >= range.q_end) return {};
  Interval keys{range.k_begin, range.k_end};
  const bool causal =
      range.kind == MaskRange::Kind::kCausal || range.kind == MaskRange::Kind::kBiCausal;
  const bool inverse =
      range.kind == MaskRange::Kind::kInverseCausal || range.kind == MaskRange::Kind::kBiCausal;
  if (causal) keys.end = std::min(keys.end, row + (range.k_end - range.q_end) + 1);
  if (inverse) keys.begin = std::max(keys.begin, row + (range.k_begin - range.q_begin));
  return keys;
}

Intervals KeysOfRanges(const std::vector<MaskRange>& ranges, int64_t row) {
  Intervals keys;
  for (const MaskRange& range : ranges) keys.push_back(KeysOfRange(range, row));
  return Normalized(std::move(keys));
}

// order ∧ local for the row at position p; empty where end <= begin. Both ends grow with p.
Interval LocalKeys(const Mask& mask, int64_t p, Interval order) {
  Interval local = order;
  if (mask.window_left) local.begin = std::max(local.begin, p - *mask.window_left);
  if (mask.window_right) local.end = std::min(local.end, p + *mask.window_right + 1);
  if (mask.chunk) {
    const int64_t begin = FloorDiv(p, *mask.chunk) * *mask.chunk;
    local = Intersect(local, {begin, begin + *mask.chunk});
  }
  return local;
}

Interval OrderedKeys(const Mask& mask, int64_t p, int64_t kv_len) {
  if (!mask.causal) return {0, kv_len};
  return {0, std::min(kv_len, std::max(p + 1, mask.prefix.value_or(0)))};
}

// order ∧ (local ∨ j < always_visible), for the row at position p.
Intervals KeysOfRule(const Mask& mask, int64_t p, int64_t kv_len) {
  const Interval order = OrderedKeys(mask, p, kv_len);
  const Interval always = Intersect(order, {0, mask.always_visible.value_or(0)});
  return Normalized(Intervals{LocalKeys(mask, p, order), always});
}

// The same for rows at positions first … last together. A row inside the keys sees its own
// position, so that neighbours' intervals touch and sweep from the first one's begin to the last
// one's end.
Intervals KeysOfRuleSwept(const Mask& mask, int64_t first, int64_t last, int64_t kv_len) {
  const Interval order = OrderedKeys(mask, last, kv_len);
  const Interval always = Intersect(order, {0, mask.always_visible.value_or(0)});
  const Interval local{LocalKeys(mask, first, OrderedKeys(mask, first, kv_len)).begin,
                       LocalKeys(mask, last, order).end};
  return Normalized(Intervals{local, always});
}

int64_t PositionOf(const Mask& mask, int64_t row, int64_t q_len, int64_t kv_len) {
  return mask.alignment == Mask::Alignment::kTopLeft ? row : row + (kv_len - q_len);
}

void Clamp(std::optional<int64_t>* value) {
  if (*value) **value = std::min(**value, kFar);
}

// The longest beginning of `rows` in which the same chunk and the same ranges hold.
Interval Piece(const Mask& mask, int64_t shift, Interval rows) {
  int64_t end = rows.end;
  if (mask.chunk) {
    end = std::min(end, (FloorDiv(rows.begin + shift, *mask.chunk) + 1) * *mask.chunk - shift);
  }
  for (const MaskRange& range : mask.ranges) {
    if (range.q_begin > rows.begin) end = std::min(end, range.q_begin);
    if (range.q_end > rows.begin) end = std::min(end, range.q_end);
  }
  return {rows.begin, end};
}

// In a piece, the number of visible keys is a function of the row that bends only where an edge
// that moves with the row (j = row + moving) meets one that does not (j = fixed).
struct Edges {
  std::vector<int64_t> fixed, moving;
};

Edges EdgesOf(const Mask& mask, int64_t shift, int64_t row, Interval keys, int64_t kv_len) {
  Edges edges;
  edges.fixed = {0, kv_len, keys.begin, keys.end};
  if (mask.causal) edges.moving.push_back(shift + 1);
  if (mask.window_left) edges.moving.push_back(shift - *mask.window_left);
  if (mask.window_right) edges.moving.push_back(shift + *mask.window_right + 1);
  if (mask.prefix) edges.fixed.push_back(*mask.prefix);
  if (mask.always_visible) edges.fixed.push_back(*mask.always_visible);
  if (mask.chunk) {
    const int64_t chunk = FloorDiv(row + shift, *mask.chunk) * *mask.chunk;
    edges.fixed.insert(edges.fixed.end(), {chunk, chunk + *mask.chunk});
  }
  for (const MaskRange& range : mask.ranges) {
    if (row < range.q_begin || row >= range.q_end) continue;
    edges.fixed.insert(edges.fixed.end(), {range.k_begin, range.k_end});
    edges.moving.push_back(range.k_end - range.q_end + 1);
    edges.moving.push_back(range.k_begin - range.q_begin);
  }
  return edges;
}

// Cuts `rows` so that the count is linear in each part, both ends included.
std::vector<int64_t> Cuts(const Edges& edges, Interval rows) {
  std::vector<int64_t> cuts = {rows.begin, rows.end};
  for (const int64_t moving : edges.moving) {
    for (const int64_t fixed : edges.fixed) {
      const int64_t row = fixed - moving;
      if (row > rows.begin && row < rows.end) cuts.push_back(row);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

MaskMap::MaskMap(const AttentionSpec& spec) : masks_(spec.masks), q_heads_(spec.q_heads) {
  q_begin_.push_back(0);
  k_begin_.push_back(0);
  for (const Sequence& sequence : spec.sequences) {
    q_begin_.push_back(q_begin_.back() + sequence.q_len);
    k_begin_.push_back(k_begin_.back() + sequence.kv_len);
  }
  for (Mask& mask : masks_) {
    for (auto* field :
         {&mask.window_left, &mask.window_right, &mask.chunk, &mask.prefix, &mask.always_visible}) {
      Clamp(field);
    }
  }
  masks_.emplace_back();
  ReadGroups(spec);
  MakeClasses();
}

void MaskMap::ReadGroups(const AttentionSpec& spec) {
  const int32_t full = static_cast<int32_t>(spec.masks.size());
  std::vector<int32_t> group_of_mask(spec.masks.size());
  for (int32_t i = 0; i < full; ++i) {
    const std::vector<int32_t>& heads = spec.masks[i].query_heads;
    if (heads.empty() || mask_of_head_.empty()) {
      mask_of_head_.emplace_back(q_heads_, heads.empty() ? i : full);
    }
    group_of_mask[i] = static_cast<int32_t>(mask_of_head_.size()) - 1;
    for (const int32_t head : heads) mask_of_head_.back()[head] = i;
  }
  if (mask_of_head_.empty()) mask_of_head_.emplace_back(q_heads_, full);
  for (const Sequence& sequence : spec.sequences) {
    group_of_sequence_.push_back(full == 0 ? 0 : group_of_mask[sequence.mask]);
  }
}

void MaskMap::MakeClasses() {
  class_begin_.push_back(0);
  for (int32_t head = 1; head < q_heads_; ++head) {
    const bool differs =
        std::any_of(mask_of_head_.begin(), mask_of_head_.end(),
                    [&](const auto& of_head) { return of_head[head] != of_head[head - 1]; });
    if (differs) class_begin_.push_back(head);
  }
  class_begin_.push_back(q_heads_);
}

const Mask& MaskMap::MaskOf(int64_t sequence, int32_t q_head) const {
  return masks_[mask_of_head_[group_of_sequence_[sequence]][q_head]];
}

Intervals MaskMap::Visible(int64_t sequence, int32_t q_head, int64_t row) const {
  const Mask& mask = MaskOf(sequence, q_head);
  const int64_t q_len = q_begin_[sequence + 1] - q_begin_[sequence];
  const int64_t kv_len = k_begin_[sequence + 1] - k_begin_[sequence];
  const Intervals keys = KeysOfRule(mask, PositionOf(mask, row, q_len, kv_len), kv_len);
  return mask.ranges.empty() ? keys : IntersectAll(keys, KeysOfRanges(mask.ranges, row));
}

Intervals MaskMap::VisiblePacked(int32_t q_head, int64_t q_row) const {
  const int64_t sequence = SequenceOfQuery(q_row);
  Intervals keys = Visible(sequence, q_head, q_row - q_begin_[sequence]);
  for (Interval& interval : keys) {
    interval.begin += k_begin_[sequence];
    interval.end += k_begin_[sequence];
  }
  return keys;
}

int64_t MaskMap::Position(int32_t q_head, int64_t q_row) const {
  const int64_t sequence = SequenceOfQuery(q_row);
  const int64_t q_begin = q_begin_[sequence], k_begin = k_begin_[sequence];
  return k_begin + PositionOf(MaskOf(sequence, q_head), q_row - q_begin,
                              q_begin_[sequence + 1] - q_begin, k_begin_[sequence + 1] - k_begin);
}

int64_t MaskMap::SequenceOfQuery(int64_t q_row) const {
  return std::upper_bound(q_begin_.begin(), q_begin_.end(), q_row) - q_begin_.begin() - 1;
}

int64_t MaskMap::SequenceOfKey(int64_t k_row) const {
  return std::upper_bound(k_begin_.begin(), k_begin_.end(), k_row) - k_begin_.begin() - 1;
}

int64_t MaskMap::Area(int32_t q_head, Interval q_rows, Interval k_rows) const {
  q_rows = Intersect(q_rows, {0, q_begin_.back()});
  k_rows = Intersect(k_rows, {0, k_begin_.back()});
  if (q_rows.length() == 0 || k_rows.length() == 0) return 0;
  const int64_t first = std::max(SequenceOfQuery(q_rows.begin), SequenceOfKey(k_rows.begin));
  const int64_t last = std::min(SequenceOfQuery(q_rows.end - 1), SequenceOfKey(k_rows.end - 1));
  int64_t area = 0;
  for (int64_t sequence = first; sequence <= last; ++sequence) {
    const Interval q = Intersect(q_rows, {q_begin_[sequence], q_begin_[sequence + 1]});
    const Interval k = Intersect(k_rows, {k_begin_[sequence], k_begin_[sequence + 1]});
    if (q.length() == 0 || k.length() == 0) continue;
    area +=
        AreaInSequence(sequence, q_head, {q.begin - q_begin_[sequence], q.end - q_begin_[sequence]},
                       {k.begin - k_begin_[sequence], k.end - k_begin_[sequence]});
  }
  return area;
}

int64_t MaskMap::AreaInSequence(int64_t sequence, int32_t q_head, Interval q, Interval k) const {
  const Mask& mask = MaskOf(sequence, q_head);
  const int64_t q_len = q_begin_[sequence + 1] - q_begin_[sequence];
  const int64_t kv_len = k_begin_[sequence + 1] - k_begin_[sequence];
  const int64_t shift = PositionOf(mask, 0, q_len, kv_len);
  const auto count = [&](int64_t row) {
    int64_t keys = 0;
    for (const Interval& visible : Visible(sequence, q_head, row)) {
      keys += Intersect(visible, k).length();
    }
    return keys;
  };
  int64_t area = 0;
  for (Interval rest = q; rest.length() > 0;) {
    const Interval rows = Piece(mask, shift, rest);
    const std::vector<int64_t> cuts = Cuts(EdgesOf(mask, shift, rows.begin, k, kv_len), rows);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      area += (count(cuts[i]) + count(cuts[i + 1] - 1)) * (cuts[i + 1] - cuts[i]) / 2;
    }
    rest.begin = rows.end;
  }
  return area;
}

std::vector<Interval> MaskMap::VisibleToAny(int32_t q_head, Interval q_rows) const {
  std::vector<Interval> keys;
  q_rows = Intersect(q_rows, {0, q_begin_.back()});
  if (q_rows.length() == 0) return keys;
  const int64_t last = SequenceOfQuery(q_rows.end - 1);
  for (int64_t sequence = SequenceOfQuery(q_rows.begin); sequence <= last; ++sequence) {
    const Interval q = Intersect(q_rows, {q_begin_[sequence], q_begin_[sequence + 1]});
    if (q.length() == 0) continue;
    AddVisibleToAny(sequence, q_head, {q.begin - q_begin_[sequence], q.end - q_begin_[sequence]},
                    &keys);
  }
  return Normalized(std::move(keys));
}

// Between two cuts, from the row after the first on, the intervals of a row keep their number, and
// their ends stand still or move one key a row: each sweeps an interval.
void MaskMap::AddVisibleToAny(int64_t sequence, int32_t q_head, Interval q,
                              std::vector<Interval>* keys) const {
  const Mask& mask = MaskOf(sequence, q_head);
  const int64_t q_len = q_begin_[sequence + 1] - q_begin_[sequence];
  const int64_t k_begin = k_begin_[sequence], kv_len = k_begin_[sequence + 1] - k_begin;
  const int64_t shift = PositionOf(mask, 0, q_len, kv_len);
  const auto add = [&](const Intervals& first, const Intervals& last) {
    for (size_t i = 0; i < first.size(); ++i) {
      keys->push_back({first[i].begin + k_begin, last[i].end + k_begin});
    }
  };
  if (mask.ranges.empty()) {
    const Intervals swept = KeysOfRuleSwept(mask, q.begin + shift, q.end - 1 + shift, kv_len);
    return add(swept, swept);
  }
  for (Interval rest = q; rest.length() > 0;) {
    const Interval rows = Piece(mask, shift, rest);
    const std::vector<int64_t> cuts =
        Cuts(EdgesOf(mask, shift, rows.begin, {0, kv_len}, kv_len), rows);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Intervals at_cut = Visible(sequence, q_head, cuts[i]);
      add(at_cut, at_cut);
      if (cuts[i + 1] - cuts[i] < 2) continue;
      add(Visible(sequence, q_head, cuts[i] + 1), Visible(sequence, q_head, cuts[i + 1] - 1));
    }
    rest.begin = rows.end;
  }
}

Coverage MaskMap::Classify(int32_t q_head, Interval q_rows, Interval k_rows) const {
  const int64_t area = Area(q_head, q_rows, k_rows);
  if (area == 0) return Coverage::kEmpty;
  if (area < q_rows.length() * k_rows.length()) return Coverage::kPartial;
  // All of it, so the rectangle lies in one sequence.
  const bool bits = MaskOf(SequenceOfQuery(q_rows.begin), q_head).bit_mask;
  return bits ? Coverage::kPartial : Coverage::kFull;
}

}  // namespace annulus
