#include "attention/mask/mask.h"

#include <algorithm>
#include <utility>

#include "attention/mask/mask_rule.h"

namespace annulus {
namespace {

// Below this many rows, evaluating each row is as cheap as cutting them.
constexpr int64_t kFewRows = 16;

// MaskMap::ForEachSweep for rows of one sequence, without regard to ranges.
void ForEachSweepOfRule(const MaskedSequence& of, Interval rows,
                        absl::FunctionRef<void(Interval, MovingIntervals&)> fn) {
  const auto sweep = [&](Interval part) {
    const Intervals first = KeysOfRule(of, part.begin);
    const Intervals last = part.length() > 1 ? KeysOfRule(of, part.end - 1) : first;
    MovingIntervals sweeps = SweepsBetween(first, last);
    fn(part, sweeps);
  };
  while (rows.length() > 0) {
    const Interval chunk = RowsOfChunk(of, rows);
    rows.begin = chunk.end;
    if (chunk.length() < kFewRows) {
      for (int64_t row = chunk.begin; row < chunk.end; ++row) sweep({row, row + 1});
      continue;
    }
    const std::vector<int64_t> cuts = Cuts(of, {}, chunk, {0, of.kv_len});
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      sweep({cuts[i], cuts[i] + 1});
      if (cuts[i] + 1 < cuts[i + 1]) sweep({cuts[i] + 1, cuts[i + 1]});
    }
  }
}

}  // namespace

MaskMap::MaskMap(const AttentionSpec& spec)
    : masks_(spec.masks), groups_(spec), q_heads_(spec.q_heads) {
  q_begin_.push_back(0);
  k_begin_.push_back(0);
  for (const Sequence& sequence : spec.sequences) {
    q_begin_.push_back(q_begin_.back() + sequence.q_len);
    k_begin_.push_back(k_begin_.back() + sequence.kv_len);
  }
  for (Mask& mask : masks_) ClampFar(&mask);
  masks_.emplace_back();
  MakePieces(spec);
  MakeHeadRuns(spec.kv_heads > 0 ? std::max(1, spec.q_heads / spec.kv_heads) : 1);
}

void MaskMap::MakePieces(const AttentionSpec& spec) {
  std::map<int32_t, RangeBands> bands;
  groups_.ForEachFollowed(spec, [&](int32_t number, const Sequence& sequence) {
    const Mask& mask = masks_[number];
    const std::tuple key{number, sequence.q_len, sequence.kv_len};
    if (mask.ranges.empty() || pieces_.count(key) != 0) return;
    const RangeBands& own = bands.try_emplace(number, mask.ranges).first->second;
    pieces_.emplace(key, IntervalPieces(mask, own, sequence.q_len, sequence.kv_len));
  });
}

void MaskMap::MakeHeadRuns(int32_t group) {
  const std::vector<int32_t>& class_of = groups_.class_of_head;
  const auto same = [&](int32_t a, int32_t b) {
    return std::equal(class_of.begin() + a, class_of.begin() + a + group, class_of.begin() + b);
  };
  std::vector<int32_t> begins = {0};
  for (int32_t head = group; head + group <= q_heads_; head += group) {
    if (!same(head - group, head)) begins.push_back(head);
  }
  if (begins.size() > static_cast<size_t>(kMaxHeadRuns)) begins = {0};
  for (size_t i = 0; i < begins.size(); ++i) {
    HeadRun run{begins[i], i + 1 < begins.size() ? begins[i + 1] : q_heads_, {}};
    ForEachClass(run.begin, run.end, [&](int32_t head, int32_t) { run.heads.push_back(head); });
    head_runs_.push_back(std::move(run));
  }
}

void MaskMap::ForEachClass(int32_t begin, int32_t end,
                           absl::FunctionRef<void(int32_t, int32_t)> fn) const {
  if (begin >= end) return;
  if (classes() == 1) return fn(begin, end - begin);
  std::vector<int32_t> first(classes(), -1), count(classes(), 0), order;
  for (int32_t head = begin; head < end; ++head) {
    const int32_t head_class = ClassOf(head);
    if (count[head_class]++ == 0) {
      first[head_class] = head;
      order.push_back(head_class);
    }
  }
  for (const int32_t head_class : order) fn(first[head_class], count[head_class]);
}

const IntervalPieces* MaskMap::PiecesOf(int64_t sequence, int32_t mask) const {
  if (masks_[mask].ranges.empty()) return nullptr;
  return &pieces_.at({mask, QueryRows(sequence), KeyRows(sequence)});
}

Intervals MaskMap::Visible(int64_t sequence, int32_t q_head, int64_t row) const {
  const int32_t mask = MaskOf(sequence, q_head);
  if (const IntervalPieces* pieces = PiecesOf(sequence, mask)) return pieces->KeysOf(row);
  return KeysOfRule({masks_[mask], QueryRows(sequence), KeyRows(sequence)}, row);
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

void MaskMap::ForEachSweep(int32_t q_head, Interval q_rows,
                           absl::FunctionRef<void(Interval, const MovingIntervals&)> fn) const {
  ForEachSequence(q_rows, [&](int64_t sequence, Interval q) {
    const int32_t mask = MaskOf(sequence, q_head);
    const auto packed = [&](Interval rows, MovingIntervals& sweeps) {
      for (Sweep& sweep : sweeps) {
        sweep.keys.begin += k_begin_[sequence];
        sweep.keys.end += k_begin_[sequence];
      }
      fn({rows.begin + q_begin_[sequence], rows.end + q_begin_[sequence]}, sweeps);
    };
    if (const IntervalPieces* pieces = PiecesOf(sequence, mask)) {
      pieces->ForEachSweep(q, packed);
    } else {
      ForEachSweepOfRule({masks_[mask], QueryRows(sequence), KeyRows(sequence)}, q, packed);
    }
    return true;
  });
}

int64_t MaskMap::Position(int32_t q_head, int64_t q_row) const {
  const int64_t sequence = SequenceOfQuery(q_row);
  const MaskedSequence of(masks_[MaskOf(sequence, q_head)], QueryRows(sequence), KeyRows(sequence));
  return k_begin_[sequence] + q_row - q_begin_[sequence] + of.shift;
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
  const int32_t mask = MaskOf(sequence, q_head);
  if (const IntervalPieces* pieces = PiecesOf(sequence, mask)) return pieces->Area(q, k);
  const MaskedSequence of(masks_[mask], QueryRows(sequence), KeyRows(sequence));
  const auto count = [&](int64_t row) {
    int64_t keys = 0;
    for (const Interval& visible : KeysOfRule(of, row)) keys += Intersect(visible, k).length();
    return keys;
  };
  int64_t area = 0;
  for (Interval rest = q; rest.length() > 0;) {
    const AlikeRows alike = RowsAlike(of, rest, k);
    const std::vector<int64_t> cuts = Cuts(of, {}, alike.rows, k);
    int64_t pairs = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      pairs += (count(cuts[i]) + count(cuts[i + 1] - 1)) * (cuts[i + 1] - cuts[i]) / 2;
    }
    area += alike.times * pairs;
    rest.begin += alike.times * alike.rows.length();
  }
  return area;
}

void MaskMap::ForEachSequence(Interval q_rows,
                              absl::FunctionRef<bool(int64_t, Interval)> fn) const {
  q_rows = Intersect(q_rows, {0, q_begin_.back()});
  if (q_rows.length() == 0) return;
  const int64_t last = SequenceOfQuery(q_rows.end - 1);
  for (int64_t sequence = SequenceOfQuery(q_rows.begin); sequence <= last; ++sequence) {
    const int64_t begin = q_begin_[sequence];
    const Interval q = Intersect(q_rows, {begin, q_begin_[sequence + 1]});
    if (q.length() > 0 && !fn(sequence, {q.begin - begin, q.end - begin})) return;
  }
}

std::vector<Interval> MaskMap::VisibleToAny(int32_t q_head, Interval q_rows) const {
  std::vector<Interval> keys;
  ForEachSequence(q_rows, [&](int64_t sequence, Interval q) {
    const int32_t mask = MaskOf(sequence, q_head);
    const size_t before = keys.size();
    if (const IntervalPieces* pieces = PiecesOf(sequence, mask)) {
      pieces->AddVisible(q, &keys);
    } else {
      for (const Interval& swept :
           KeysOfRuleSwept({masks_[mask], QueryRows(sequence), KeyRows(sequence)}, q)) {
        keys.push_back(swept);
      }
    }
    for (size_t i = before; i < keys.size(); ++i) {
      keys[i].begin += k_begin_[sequence];
      keys[i].end += k_begin_[sequence];
    }
    return true;
  });
  return Normalized(std::move(keys));
}

bool MaskMap::SeesAny(int32_t q_head, Interval q_rows, Interval keys) const {
  bool sees = false;
  ForEachSequence(q_rows, [&](int64_t sequence, Interval q) {
    const int32_t mask = MaskOf(sequence, q_head);
    const Interval k{keys.begin - k_begin_[sequence], keys.end - k_begin_[sequence]};
    if (const IntervalPieces* pieces = PiecesOf(sequence, mask)) {
      sees = pieces->SeesAny(q, k);
      return !sees;
    }
    for (const Interval& swept :
         KeysOfRuleSwept({masks_[mask], QueryRows(sequence), KeyRows(sequence)}, q)) {
      sees = sees || Intersect(swept, k).length() > 0;
    }
    return !sees;
  });
  return sees;
}

Coverage MaskMap::Classify(int32_t q_head, Interval q_rows, Interval k_rows) const {
  const int64_t area = Area(q_head, q_rows, k_rows);
  if (area == 0) return Coverage::kEmpty;
  if (area < q_rows.length() * k_rows.length()) return Coverage::kPartial;
  // All pairs are visible, so the rectangle lies in one sequence.
  const bool bits = HasBits(q_head, SequenceOfQuery(q_rows.begin));
  return bits ? Coverage::kPartial : Coverage::kFull;
}

}  // namespace annulus
