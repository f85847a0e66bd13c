#include "attention/mask/interval_pieces.h"

#include <algorithm>
#include <utility>

#include "attention/mask/mask_rule.h"

namespace annulus {
namespace {

// True if each end is fixed or moves by one key per row between `first` and `last`, which is
// `steps` rows later.
bool Straight(const Intervals& first, const Intervals& last, int64_t steps) {
  if (first.size() != last.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    const int64_t begin = last[i].begin - first[i].begin, end = last[i].end - first[i].end;
    if ((begin != 0 && begin != steps) || (end != 0 && end != steps)) return false;
  }
  return true;
}

// Σ clamp(at + step·n, within.begin, within.end) for n = 0 … rows − 1; step is 0 or 1.
int64_t SumClamped(int64_t at, int64_t step, int64_t rows, Interval within) {
  if (step == 0) return rows * std::clamp(at, within.begin, within.end);
  const int64_t below = std::clamp<int64_t>(within.begin - at, 0, rows);
  const int64_t until = std::clamp<int64_t>(within.end - at, 0, rows);
  const int64_t inside = std::max<int64_t>(0, until - below);
  const int64_t sum = inside * (2 * (at + below) + inside - 1) / 2;
  return below * within.begin + sum + (rows - below - inside) * within.end;
}

}  // namespace

RangeBands::RangeBands(const std::vector<MaskRange>& ranges) {
  std::vector<int64_t> ends = {0};
  std::vector<int32_t> sorted;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].q_begin >= ranges[i].q_end) continue;
    ends.insert(ends.end(), {ranges[i].q_begin, ranges[i].q_end});
    sorted.push_back(static_cast<int32_t>(i));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::sort(sorted.begin(), sorted.end(),
            [&](int32_t a, int32_t b) { return ranges[a].q_begin < ranges[b].q_begin; });
  std::vector<int32_t> open;
  size_t next = 0;
  for (const int64_t begin : ends) {
    open.erase(std::remove_if(open.begin(), open.end(),
                              [&](int32_t range) { return ranges[range].q_end <= begin; }),
               open.end());
    for (; next < sorted.size() && ranges[sorted[next]].q_begin <= begin; ++next) {
      open.push_back(sorted[next]);
    }
    bands_.push_back({begin, static_cast<int64_t>(open_.size())});
    open_.insert(open_.end(), open.begin(), open.end());
  }
}

int64_t RangeBands::bands(int64_t q_len) const {
  return std::partition_point(bands_.begin(), bands_.end(),
                              [&](const Band& band) { return band.begin < q_len; }) -
         bands_.begin();
}

Interval RangeBands::RowsOf(int64_t band, int64_t q_len) const {
  const size_t next = band + 1;
  return {bands_[band].begin, next == bands_.size() ? q_len : std::min(q_len, bands_[next].begin)};
}

std::vector<MaskRange> RangeBands::RangesOf(int64_t band,
                                            const std::vector<MaskRange>& list) const {
  const size_t next = band + 1;
  const auto end = next == bands_.size() ? static_cast<int64_t>(open_.size()) : bands_[next].first;
  std::vector<MaskRange> ranges;
  for (int64_t i = bands_[band].first; i < end; ++i) ranges.push_back(list[open_[i]]);
  return ranges;
}

IntervalPieces::IntervalPieces(const Mask& mask, const RangeBands& bands, int64_t q_len,
                               int64_t kv_len)
    : q_len_(q_len) {
  const MaskedSequence of(mask, q_len, kv_len);
  for (int64_t i = 0; i < bands.bands(q_len); ++i) {
    AddRows(of, bands.RangesOf(i, mask.ranges), bands.RowsOf(i, q_len));
  }
  JoinBlocks();
}

void IntervalPieces::AddRows(const MaskedSequence& of, absl::Span<const MaskRange> ranges,
                             Interval rows) {
  const auto keys_of = [&](int64_t row) {
    return IntersectAll(KeysOfRule(of, row), KeysOfRanges(ranges, row));
  };
  if (ranges.empty()) return AddPiece(rows.begin, {}, {}, rows.length());
  while (rows.length() > 0) {
    const Interval chunk = RowsOfChunk(of, rows);
    const std::vector<int64_t> cuts = Cuts(of, ranges, chunk, {0, of.kv_len});
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Intervals first = keys_of(cuts[i]);
      AddPiece(cuts[i], first, first, 1);
      const int64_t more = cuts[i + 1] - cuts[i] - 1;
      if (more > 0) AddPiece(cuts[i] + 1, keys_of(cuts[i] + 1), keys_of(cuts[i + 1] - 1), more);
    }
    rows.begin = chunk.end;
  }
}

// Joins the rows to the last piece if they continue it.
void IntervalPieces::AddPiece(int64_t begin, const Intervals& first, const Intervals& last,
                              int64_t rows) {
  if (!pieces_.empty()) {
    const Piece& before = pieces_.back();
    const Intervals start = KeysOf(before.begin);
    const int64_t had = begin - before.begin;
    bool joins = Straight(start, first, had) && Straight(start, last, had + rows - 1);
    for (size_t i = 0; joins && i < start.size(); ++i) {
      Sweep& sweep = sweeps_[before.first_sweep + i];
      const int64_t begin_step = first[i].begin == start[i].begin ? 0 : 1;
      const int64_t end_step = first[i].end == start[i].end ? 0 : 1;
      joins = had == 1 || (begin_step == sweep.begin_step && end_step == sweep.end_step);
      joins = joins && last[i].begin == start[i].begin + begin_step * (had + rows - 1) &&
              last[i].end == start[i].end + end_step * (had + rows - 1);
    }
    if (joins) {
      for (size_t i = 0; i < start.size(); ++i) {
        Sweep& sweep = sweeps_[before.first_sweep + i];
        sweep.begin_step = first[i].begin == start[i].begin ? 0 : 1;
        sweep.end_step = first[i].end == start[i].end ? 0 : 1;
      }
      return;
    }
  }
  pieces_.push_back({begin, static_cast<int32_t>(sweeps_.size())});
  const MovingIntervals sweeps = SweepsBetween(first, last);
  sweeps_.insert(sweeps_.end(), sweeps.begin(), sweeps.end());
}

int64_t IntervalPieces::PieceOf(int64_t row) const {
  return std::upper_bound(pieces_.begin(), pieces_.end(), row,
                          [](int64_t r, const Piece& p) { return r < p.begin; }) -
         pieces_.begin() - 1;
}

IntervalPieces::Part IntervalPieces::PartOf(int64_t piece, Interval rows) const {
  const Interval own{pieces_[piece].begin, EndOf(piece)};
  const Interval part = Intersect(own, rows);
  const size_t begin = pieces_[piece].first_sweep;
  const size_t end = piece + 1 < pieces() ? pieces_[piece + 1].first_sweep : sweeps_.size();
  return {absl::MakeConstSpan(sweeps_).subspan(begin, end - begin), part.begin - own.begin,
          part.length()};
}

template <typename Fn>
void IntervalPieces::ForEachPart(Interval rows, Fn fn) const {
  rows = Intersect(rows, {0, q_len_});
  if (rows.length() == 0) return;
  const int64_t last = PieceOf(rows.end - 1);
  for (int64_t piece = PieceOf(rows.begin); piece <= last; ++piece) {
    if (!fn(PartOf(piece, rows))) return;
  }
}

template <typename Fn>
void IntervalPieces::ForEachVisible(Interval rows, Fn fn) const {
  rows = Intersect(rows, {0, q_len_});
  if (rows.length() == 0) return;
  const int64_t end = PieceOf(rows.end - 1) + 1;
  for (int64_t piece = PieceOf(rows.begin); piece < end;) {
    const int64_t block_end = piece + kBlock;
    const bool whole = piece % kBlock == 0 && block_end <= end &&
                       rows.begin <= pieces_[piece].begin && EndOf(block_end - 1) <= rows.end;
    if (whole && !seen_.empty()) {
      for (const Interval& keys : seen_[piece / kBlock]) {
        if (!fn(keys)) return;
      }
      piece = block_end;
      continue;
    }
    const Part part = PartOf(piece++, rows);
    for (const Sweep& sweep : part.sweeps) {
      const Interval keys{sweep.keys.begin + sweep.begin_step * part.skip,
                          sweep.keys.end + sweep.end_step * (part.skip + part.rows - 1)};
      if (!fn(keys)) return;
    }
  }
}

void IntervalPieces::JoinBlocks() {
  std::vector<std::vector<Interval>> seen;
  for (int64_t block = 0; (block + 1) * kBlock <= pieces(); ++block) {
    std::vector<Interval> keys;
    AddVisible({pieces_[block * kBlock].begin, EndOf((block + 1) * kBlock - 1)}, &keys);
    seen.push_back(Normalized(std::move(keys)));
  }
  seen_ = std::move(seen);
}

Intervals IntervalPieces::KeysOf(int64_t row) const {
  Intervals keys;
  ForEachPart({row, row + 1}, [&](const Part& part) {
    for (const Sweep& sweep : part.sweeps) keys.push_back(sweep.At(part.skip));
    return true;
  });
  return keys;
}

void IntervalPieces::ForEachSweep(Interval rows,
                                  absl::FunctionRef<void(Interval, MovingIntervals&)> fn) const {
  int64_t at = std::max<int64_t>(rows.begin, 0);
  ForEachPart(rows, [&](const Part& part) {
    MovingIntervals sweeps(part.sweeps.begin(), part.sweeps.end());
    for (Sweep& sweep : sweeps) sweep.keys = sweep.At(part.skip);
    fn({at, at + part.rows}, sweeps);
    at += part.rows;
    return true;
  });
}

void IntervalPieces::AddVisible(Interval rows, std::vector<Interval>* keys) const {
  ForEachVisible(rows, [&](Interval seen) {
    keys->push_back(seen);
    return true;
  });
}

bool IntervalPieces::SeesAny(Interval rows, Interval keys) const {
  bool sees = false;
  ForEachVisible(rows, [&](Interval seen) {
    sees = Intersect(seen, keys).length() > 0;
    return !sees;
  });
  return sees;
}

int64_t IntervalPieces::Area(Interval rows, Interval keys) const {
  int64_t area = 0;
  if (keys.length() == 0) return area;
  ForEachPart(rows, [&](const Part& part) {
    const int64_t more = part.rows - 1;
    for (const Sweep& sweep : part.sweeps) {
      const int64_t begin = sweep.keys.begin + sweep.begin_step * part.skip;
      const int64_t end = sweep.keys.end + sweep.end_step * part.skip;
      // Ends never move backwards.
      const int64_t last_end = end + sweep.end_step * more;
      if (begin >= keys.end || last_end <= keys.begin) continue;
      if (begin >= keys.begin && last_end <= keys.end) {
        area += part.rows * (end - begin) +
                (sweep.end_step - sweep.begin_step) * (part.rows * more / 2);
        continue;
      }
      area += SumClamped(end, sweep.end_step, part.rows, keys) -
              SumClamped(begin, sweep.begin_step, part.rows, keys);
    }
    return true;
  });
  return area;
}

int64_t CountCuts(const Mask& mask, const RangeBands& bands, int64_t q_len, int64_t kv_len,
                  int64_t limit) {
  const MaskedSequence of(mask, q_len, kv_len);
  int64_t cuts = 0;
  for (int64_t i = 0; i < bands.bands(q_len) && cuts <= limit; ++i) {
    Interval rows = bands.RowsOf(i, q_len);
    const std::vector<MaskRange> ranges = bands.RangesOf(i, mask.ranges);
    if (ranges.empty()) {
      ++cuts;
      continue;
    }
    while (rows.length() > 0 && cuts <= limit) {
      const Interval chunk = RowsOfChunk(of, rows);
      cuts += static_cast<int64_t>(Cuts(of, ranges, chunk, {0, kv_len}).size()) - 1;
      rows.begin = chunk.end;
    }
  }
  return cuts;
}

}  // namespace annulus
