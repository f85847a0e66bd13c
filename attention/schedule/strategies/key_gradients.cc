#include "attention/schedule/strategies/key_gradients.h"

namespace annulus {

KeyGradients::KeyGradients(const Needs& needs, const Block& keys,
                           absl::Span<const Ring::Member> visits, int32_t step)
    : keys_(keys) {
  keys_.kind = BlockKind::kDkv;
  for (const Ring::Member& member : visits) {
    const RowSet wanted = needs.OfAny(member.wants_for, keys.shard);
    if (!wanted.empty()) {
      stops_.push_back(
          {member.rank, step, stops_.empty() ? wanted : Union(stops_.back().rows, wanted)});
    }
    ++step;
  }
}

std::vector<Ring::Part> KeyGradients::Visit(int32_t rank, int32_t home,
                                            ScheduleWriter* writer) const {
  size_t here = 0;
  while (stops_[here].rank != rank) ++here;
  const int32_t step = stops_[here].step;
  const bool last = here + 1 == stops_.size();
  std::vector<Ring::Part> sums;
  for (const Interval& rows : stops_[here].rows) {
    Block block = keys_;
    block.row_begin = rows.begin;
    block.row_end = rows.end;
    sums.push_back({writer->AddBuffer(block), rows});
    if (last) {
      writer->SendHome(step + 1, sums.back().buffer, rows, home);
    } else {
      writer->Send(stops_[here + 1].step, sums.back().buffer, rows, stops_[here + 1].rank);
    }
  }
  if (here == 0) return sums;
  for (const Interval& rows : stops_[here - 1].rows) {
    // The rows of earlier stops are a subset of this stop's rows, and each interval lies in one
    // sum.
    for (const Ring::Part& sum : sums) {
      if (Intersect(sum.rows, rows).length() == 0) continue;
      writer->ReceiveInto(step, sum.buffer, rows, stops_[here - 1].rank);
    }
  }
  return sums;
}

void KeyGradients::ComeHome(int32_t target, ScheduleWriter* writer) const {
  if (stops_.empty()) return;
  for (const Interval& rows : stops_.back().rows) {
    writer->ReceiveInto(stops_.back().step + 1, target, rows, stops_.back().rank);
  }
}

}  // namespace annulus
