#include "attention/mask/mask_rule.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The keys of one range that `row` sees. The causal edge ends in the range's last corner; the
// inverse edge starts in its first corner.
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

// order ∧ local for the row at position p; empty if end <= begin. Neither end decreases as p grows.
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

// The edges of visibility for rows of one chunk inside the same ranges. The number of visible keys
// is piecewise linear in the row. Its slope changes only where a moving edge (j = row + moving)
// crosses a fixed one (j = fixed).
struct Edges {
  std::vector<int64_t> fixed, moving;
};

Edges EdgesOf(const MaskedSequence& of, absl::Span<const MaskRange> ranges, int64_t row,
              Interval keys) {
  const Mask& mask = of.mask;
  Edges edges;
  edges.fixed = {0, of.kv_len, keys.begin, keys.end};
  if (mask.causal) edges.moving.push_back(of.shift + 1);
  if (mask.window_left) edges.moving.push_back(of.shift - *mask.window_left);
  if (mask.window_right) edges.moving.push_back(of.shift + *mask.window_right + 1);
  if (mask.prefix) edges.fixed.push_back(*mask.prefix);
  if (mask.always_visible) edges.fixed.push_back(*mask.always_visible);
  if (mask.chunk) {
    const int64_t chunk = FloorDiv(row + of.shift, *mask.chunk) * *mask.chunk;
    edges.fixed.insert(edges.fixed.end(), {chunk, chunk + *mask.chunk});
  }
  for (const MaskRange& range : ranges) {
    using Kind = MaskRange::Kind;
    edges.fixed.insert(edges.fixed.end(), {range.k_begin, range.k_end});
    if (range.kind == Kind::kCausal || range.kind == Kind::kBiCausal) {
      edges.moving.push_back(range.k_end - range.q_end + 1);
    }
    if (range.kind == Kind::kInverseCausal || range.kind == Kind::kBiCausal) {
      edges.moving.push_back(range.k_begin - range.q_begin);
    }
  }
  return edges;
}

}  // namespace

void ClampFar(Mask* mask) {
  constexpr int64_t kFar = int64_t{1} << 60;
  for (auto* field : {&mask->window_left, &mask->window_right, &mask->chunk, &mask->prefix,
                      &mask->always_visible}) {
    if (*field) **field = std::min(**field, kFar);
  }
}

MaskedSequence::MaskedSequence(const Mask& mask, int64_t q_len, int64_t kv_len)
    : mask(mask),
      q_len(q_len),
      kv_len(kv_len),
      shift(mask.alignment == Mask::Alignment::kTopLeft ? 0 : kv_len - q_len) {}

// order ∧ (local ∨ j < always_visible).
Intervals KeysOfRule(const MaskedSequence& of, int64_t row) {
  const int64_t p = row + of.shift;
  const Interval order = OrderedKeys(of.mask, p, of.kv_len);
  const Interval always = Intersect(order, {0, of.mask.always_visible.value_or(0)});
  return Normalized(Intervals{LocalKeys(of.mask, p, order), always});
}

// A row whose position is a key sees that key. So the intervals of neighbouring rows touch, and
// together they reach from the begin of the first to the end of the last.
Intervals KeysOfRuleSwept(const MaskedSequence& of, Interval rows) {
  const int64_t first = rows.begin + of.shift, last = rows.end - 1 + of.shift;
  const Interval order = OrderedKeys(of.mask, last, of.kv_len);
  const Interval always = Intersect(order, {0, of.mask.always_visible.value_or(0)});
  const Interval local{LocalKeys(of.mask, first, OrderedKeys(of.mask, first, of.kv_len)).begin,
                       LocalKeys(of.mask, last, order).end};
  return Normalized(Intervals{local, always});
}

Intervals KeysOfRanges(absl::Span<const MaskRange> ranges, int64_t row) {
  Intervals keys;
  for (const MaskRange& range : ranges) keys.push_back(KeysOfRange(range, row));
  return Normalized(std::move(keys));
}

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

Interval RowsOfChunk(const MaskedSequence& of, Interval rows) {
  if (!of.mask.chunk) return rows;
  const int64_t chunk = *of.mask.chunk;
  const int64_t end = (FloorDiv(rows.begin + of.shift, chunk) + 1) * chunk - of.shift;
  return {rows.begin, std::min(rows.end, end)};
}

AlikeRows RowsAlike(const MaskedSequence& of, Interval rows, Interval keys) {
  if (!of.mask.chunk) return {rows};
  const int64_t chunk = *of.mask.chunk, always = of.mask.always_visible.value_or(0);
  const int64_t begin = rows.begin + of.shift;
  // always_visible covers these chunks entirely, so chunk limits hide nothing from their rows.
  const int64_t covered = FloorDiv(always, chunk) * chunk;
  if (begin < covered) return {{rows.begin, std::min(rows.end, covered - of.shift)}};
  const bool whole = begin % chunk == 0 && rows.length() >= chunk;
  if (!whole || begin < always) return {RowsOfChunk(of, rows)};
  // Count whole chunks up to the first edge of the prefix or of `keys`.
  int64_t times = rows.length() / chunk;
  for (const int64_t edge : {of.mask.prefix.value_or(0), keys.begin, keys.end}) {
    if (edge > begin) times = std::min(times, (edge - begin) / chunk);
  }
  return {{rows.begin, rows.begin + chunk}, std::max<int64_t>(times, 1)};
}

std::vector<int64_t> Cuts(const MaskedSequence& of, absl::Span<const MaskRange> ranges,
                          Interval rows, Interval keys) {
  const Edges edges = EdgesOf(of, ranges, rows.begin, keys);
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

}  // namespace annulus
