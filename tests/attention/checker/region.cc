#include "tests/attention/checker/region.h"

#include <algorithm>
#include <tuple>

namespace annulus {

Patch PatchOf(const Block& block) {
  return {{block.row_begin, block.row_end}, {block.head_begin, block.head_end}};
}

Patch Intersect(const Patch& a, const Patch& b) {
  return {Intersect(a.rows, b.rows), Intersect(a.heads, b.heads)};
}

void Region::Add(const Patch& patch) {
  if (patch.cells() == 0) return;
  for (Patch& old : patches_) {
    if (!(old.heads == patch.heads)) continue;
    if (old.rows.end == patch.rows.begin) {
      old.rows.end = patch.rows.end;
      return;
    }
    if (patch.rows.end == old.rows.begin) {
      old.rows.begin = patch.rows.begin;
      return;
    }
  }
  patches_.push_back(patch);
}

int64_t Region::cells() const {
  int64_t cells = 0;
  for (const Patch& patch : patches_) cells += patch.cells();
  return cells;
}

int64_t Region::CellsIn(const Patch& patch) const {
  int64_t cells = 0;
  for (const Patch& own : patches_) cells += Intersect(own, patch).cells();
  return cells;
}

std::vector<Attended> Restrict(const std::vector<Attended>& seen, const Patch& patch) {
  std::vector<Attended> inside;
  for (const Attended& one : seen) {
    Attended cut = one;
    cut.own = Intersect(one.own, patch);
    if (cut.own.cells() > 0) inside.push_back(cut);
  }
  return inside;
}

bool Disjoint(std::vector<Attended> seen) {
  std::sort(seen.begin(), seen.end(), [](const Attended& a, const Attended& b) {
    return std::tie(a.other_shard, a.others.begin) < std::tie(b.other_shard, b.others.begin);
  });
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = i + 1; j < seen.size() && seen[j].other_shard == seen[i].other_shard &&
                           seen[j].others.begin < seen[i].others.end;
         ++j) {
      if (Intersect(seen[i].own, seen[j].own).cells() > 0) return false;
    }
  }
  return true;
}

}  // namespace annulus
