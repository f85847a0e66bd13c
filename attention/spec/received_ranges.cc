#include "attention/spec/received_ranges.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

ReceivedRanges::Heads ReceivedRanges::Union(const Heads& heads, HeadRange added) {
  Heads result;
  for (const HeadRange& range : heads) {
    if (range.end < added.begin) {
      result.push_back(range);
    } else if (range.begin > added.end) {
      result.push_back(added);
      added = range;
    } else {
      added = {std::min(added.begin, range.begin), std::max(added.end, range.end)};
    }
  }
  result.push_back(added);
  return result;
}

int64_t ReceivedRanges::Count(const Heads& heads) {
  int64_t count = 0;
  for (const HeadRange& range : heads) count += range.end - range.begin;
  return count;
}

bool ReceivedRanges::Overlaps(const Heads& heads, int32_t begin, int32_t end) {
  return std::any_of(heads.begin(), heads.end(), [&](const HeadRange& range) {
    return range.begin < end && begin < range.end;
  });
}

ReceivedRanges::Spans::const_iterator ReceivedRanges::SpanAtOrAfter(int64_t row) const {
  auto after = spans_.upper_bound(row);
  if (after != spans_.begin() && std::prev(after)->second.row_end > row) --after;
  return after;
}

void ReceivedRanges::SplitAt(int64_t row) {
  auto after = spans_.lower_bound(row);
  if (after == spans_.begin()) return;
  auto span = std::prev(after);
  if (span->second.row_end <= row) return;
  spans_.emplace_hint(after, row, span->second);
  span->second.row_end = row;
  fragments_ += span->second.heads.size();
}

void ReceivedRanges::Join(int64_t row_begin, int64_t row_end) {
  auto span = spans_.lower_bound(row_begin);
  if (span != spans_.begin()) --span;
  while (span != spans_.end() && span->first <= row_end) {
    const auto next = std::next(span);
    if (next == spans_.end()) return;
    if (next->first == span->second.row_end && next->second.heads == span->second.heads) {
      span->second.row_end = next->second.row_end;
      fragments_ -= next->second.heads.size();
      spans_.erase(next);
    } else {
      span = next;
    }
  }
}

absl::Status ReceivedRanges::Add(const CellRect& rect) {
  if (fragments_ >= max_fragments_) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("chunks have left more than ", max_fragments_,
                                  " separate pieces of a tensor: send rows in order"),
                     {"TOO_MANY_FRAGMENTS", {{"limit", absl::StrCat(max_fragments_)}}, {}, {}});
  }
  const HeadRange heads{rect.head_begin, rect.head_end};
  SplitAt(rect.row_begin);
  SplitAt(rect.row_end);
  auto span = spans_.lower_bound(rect.row_begin);
  for (int64_t row = rect.row_begin; row < rect.row_end;) {
    if (span == spans_.end() || span->first > row) {
      const int64_t end = span == spans_.end() ? rect.row_end : std::min(span->first, rect.row_end);
      spans_.emplace_hint(span, row, Span{end, {heads}});
      cells_ += (end - row) * (heads.end - heads.begin);
      ++fragments_;
      row = end;
      continue;
    }
    Heads joined = Union(span->second.heads, heads);
    const int64_t rows = span->second.row_end - span->first;
    cells_ += rows * (Count(joined) - Count(span->second.heads));
    fragments_ += joined.size() - span->second.heads.size();
    span->second.heads = std::move(joined);
    row = span->second.row_end;
    ++span;
  }
  Join(rect.row_begin, rect.row_end);
  return absl::OkStatus();
}

bool ReceivedRanges::Intersects(const CellRect& rect) const {
  for (auto span = SpanAtOrAfter(rect.row_begin); span != spans_.end(); ++span) {
    if (span->first >= rect.row_end) return false;
    if (Overlaps(span->second.heads, rect.head_begin, rect.head_end)) return true;
  }
  return false;
}

bool ReceivedRanges::Contains(int64_t row, int32_t head) const {
  return Intersects({row, row + 1, head, head + 1});
}

std::vector<Interval> ReceivedRanges::MissingRows(size_t limit) const {
  std::vector<Interval> missing;
  int64_t row = 0;  // All rows before it are handled.
  auto add = [&](int64_t begin, int64_t end) {
    if (begin >= end) return true;
    if (!missing.empty() && missing.back().end == begin) {
      missing.back().end = end;
      return true;
    }
    if (missing.size() == limit) return false;
    missing.push_back({begin, end});
    return true;
  };
  for (const auto& [begin, span] : spans_) {
    if (!add(row, begin)) return missing;
    row = span.row_end;
    if (Count(span.heads) < heads_ && !add(begin, span.row_end)) return missing;
  }
  add(row, rows_);
  return missing;
}

}  // namespace annulus
