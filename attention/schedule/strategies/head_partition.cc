#include "attention/schedule/strategies/head_partition.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace annulus {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

Interval Share(const ParallelDegrees& degrees, int64_t heads, int64_t of, int64_t member) {
  const int64_t members = degrees.ulysses;
  if (degrees.deal == HeadAssignment::kUnits) {
    return {CeilDiv(member * heads - of, members), CeilDiv((member + 1) * heads - of, members)};
  }
  return {member * heads / members, (member + 1) * heads / members};
}

}  // namespace

HeadPartition::HeadPartition(const AttentionSpec& spec, const ParallelDegrees& degrees)
    : members_(degrees.ulysses), group_(spec.q_heads / spec.kv_heads) {
  std::vector<Interval> hulls(members_);  // Key/value heads of each member.
  for (int32_t of = 0; of < members_; ++of) {
    for (int32_t member = 0; member < members_; ++member) {
      const Interval heads = Share(degrees, spec.q_heads, of, member);
      queries_.push_back(heads);
      if (heads.length() == 0) continue;
      const Interval keys{heads.begin / group_, CeilDiv(heads.end, group_)};
      Interval& hull = hulls[member];
      hull = hull.length() == 0
                 ? keys
                 : Interval{std::min(hull.begin, keys.begin), std::max(hull.end, keys.end)};
    }
  }
  std::set<int64_t> cuts = {0, spec.kv_heads};
  for (const Interval& hull : hulls) {
    if (hull.length() > 0) cuts.insert({hull.begin, hull.end});
  }
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    atoms_.push_back({*cut, *std::next(cut)});
  }
  const auto number = [&](int64_t head) { return std::distance(cuts.begin(), cuts.find(head)); };
  for (const Interval& hull : hulls) {
    atoms_of_.push_back(hull.length() == 0 ? Interval{}
                                           : Interval{number(hull.begin), number(hull.end)});
  }
}

bool HeadPartition::Uses(int32_t member, int32_t of, int32_t atom) const {
  const Interval heads{atoms_[atom].begin * group_, atoms_[atom].end * group_};
  return Intersect(Queries(of, member), heads).length() > 0;
}

}  // namespace annulus
