#include "attention/schedule/strategies/ring_route.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"

namespace annulus {
namespace {

// Calls fn(step, rows) for each piece of `rows` that moves to distance `distance`.
template <typename Fn>
void ForEachPiece(Interval rows, int32_t distance, const Ring::Timing& timing, Fn fn) {
  for (int32_t piece = 0; piece < timing.pieces; ++piece) {
    const Interval part{rows.begin + rows.length() * piece / timing.pieces,
                        rows.begin + rows.length() * (piece + 1) / timing.pieces};
    if (part.length() > 0) fn(timing.first + (distance - 1) * timing.pieces + piece, part);
  }
}

}  // namespace

Ring RingOfRanks(const Needs& needs, int32_t world, int32_t rank) {
  std::vector<Ring::Member> members;
  for (int32_t r = 0; r < world; ++r) members.push_back({r, {r}});
  return Ring(needs, std::move(members), rank);
}

Ring::Ring(const Needs& needs, std::vector<Member> members, int32_t position)
    : needs_(&needs), members_(std::move(members)), position_(position) {
  after_end_.push_back(0);
  for (size_t k = 1; k < members_.size(); ++k) {
    const std::vector<int32_t>& ranks = At(static_cast<int32_t>(k)).wants_for;
    after_.insert(after_.end(), ranks.begin(), ranks.end());
    after_end_.push_back(after_.size());
  }
}

const Ring::Member& Ring::At(int32_t offset) const {
  const int32_t size = static_cast<int32_t>(members_.size());
  return members_[(position_ + offset + size) % size];
}

RowSet Ring::Later(int32_t shard, int32_t distance) const {
  const size_t members = members_.size() - 1 - distance;
  return needs_->OfAny(absl::MakeConstSpan(after_).first(after_end_[members]), shard);
}

RowSet Ring::WantedByAll(int32_t shard) const { return Union(Wanted(shard), Later(shard, 0)); }

std::vector<Ring::Member> Ring::VisitsFrom(int32_t offset) const {
  std::vector<Member> visits;
  for (size_t hops = 1; hops < members_.size(); ++hops) {
    visits.push_back(At(offset + static_cast<int32_t>(hops)));
  }
  return visits;
}

bool Ring::IsStop(int32_t offset, int32_t shard) const {
  const std::vector<int32_t>& ranks = At(offset).wants_for;
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int32_t rank) { return !needs_->Of(rank, shard).empty(); });
}

int32_t Ring::HopsOn(int32_t shard) const {
  int32_t hops = 1;
  while (!IsStop(hops, shard)) ++hops;
  return hops;
}

int32_t Ring::HopsBack(int32_t shard, int32_t distance) const {
  int32_t hops = 1;
  while (hops < distance && !IsStop(-hops, shard)) ++hops;
  return hops;
}

std::vector<Ring::Part> Ring::Receive(const Block& what, int32_t distance, const Timing& timing,
                                      ScheduleWriter* writer) const {
  const RowSet wanted = Wanted(what.shard);
  if (wanted.empty()) return {};
  const int32_t from = At(-HopsBack(what.shard, distance)).rank;
  std::vector<Part> parts;
  for (const Interval& rows : Union(wanted, Later(what.shard, distance))) {
    Block block = what;
    block.row_begin = rows.begin;
    block.row_end = rows.end;
    const int32_t buffer = writer->AddBuffer(block);
    ForEachPiece(rows, distance, timing,
                 [&](int32_t step, Interval piece) { writer->Receive(step, buffer, piece, from); });
    parts.push_back({buffer, rows});
  }
  return parts;
}

void Ring::SendOn(int32_t shard, int32_t distance, const std::vector<Part>& parts,
                  const Timing& timing, ScheduleWriter* writer) const {
  if (parts.empty()) return;
  const RowSet later = Later(shard, distance);
  if (later.empty()) return;
  const int32_t hops = HopsOn(shard);
  for (const Part& part : parts) {
    for (const Interval& rows : Clip(later, part.rows)) {
      ForEachPiece(rows, distance + hops, timing, [&](int32_t step, Interval piece) {
        writer->Send(step, part.buffer, piece, At(hops).rank);
      });
    }
  }
}

void Ring::ForEachWanted(const RowSet& wanted, absl::Span<const Part> keys,
                         absl::Span<const Part> gradients,
                         absl::FunctionRef<void(int32_t, Interval, int32_t)> fn) {
  for (const Part& part : keys) {
    for (const Interval& rows : Clip(wanted, part.rows)) {
      if (gradients.empty()) fn(part.buffer, rows, -1);
      for (const Part& sums : gradients) {
        const Interval both = Intersect(sums.rows, rows);
        if (both.length() > 0) fn(part.buffer, both, sums.buffer);
      }
    }
  }
}

}  // namespace annulus
