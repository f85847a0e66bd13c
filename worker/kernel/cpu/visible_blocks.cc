#include "worker/kernel/cpu/visible_blocks.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

// Appends the blocks of `keys` to `blocks`, or joins them to its last interval.
void AddBlocks(const Interval& keys, std::vector<Interval>* blocks) {
  if (keys.length() == 0) return;
  const Interval more{keys.begin / kKeyBlock, (keys.end + kKeyBlock - 1) / kKeyBlock};
  if (blocks->empty() || more.begin < blocks->back().begin || more.begin > blocks->back().end) {
    blocks->push_back(more);
    return;
  }
  blocks->back().end = std::max(blocks->back().end, more.end);
}

}  // namespace

VisibleBlocks::VisibleBlocks(absl::Span<const Interval> stripes, KeysOf keys_of,
                             const KernelControl& control)
    : first_(stripes.size() + 1, 0) {
  for (size_t stripe = 0; stripe < stripes.size(); ++stripe) {
    if (!control.stopped()) {
      const Interval& rows = stripes[stripe];
      std::vector<Interval> blocks;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (const Interval& keys : keys_of(row)) AddBlocks(keys, &blocks);
      }
      blocks = Normalized(std::move(blocks));
      blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
      control.Count(1);
    }
    first_[stripe + 1] = static_cast<int64_t>(blocks_.size());
  }
}

bool VisibleBlocks::Has(int64_t stripe, int64_t block) const {
  const absl::Span<const Interval> blocks = Of(stripe);
  const auto behind =
      std::upper_bound(blocks.begin(), blocks.end(), block,
                       [](int64_t at, const Interval& other) { return at < other.begin; });
  return behind != blocks.begin() && block < std::prev(behind)->end;
}

void CellLines::Add(int64_t stripe, Interval lines) {
  if (lines.length() == 0) return;
  begins_.push_back({lines.begin, stripe});
  ends_.push_back({lines.end, stripe});
}

bool CellLines::ForEach(int64_t lines, absl::FunctionRef<void(int64_t, int64_t)> cell,
                        absl::FunctionRef<bool(int64_t)> done) {
  const auto sooner = [](const Edge& a, const Edge& b) { return a.line < b.line; };
  std::sort(begins_.begin(), begins_.end(), sooner);
  std::sort(ends_.begin(), ends_.end(), sooner);
  std::set<int64_t> here;
  auto begin = begins_.begin(), end = ends_.begin();
  for (int64_t line = 0; line < lines; ++line) {
    // Ends come first: the stripe may begin again on this line.
    for (; end != ends_.end() && end->line <= line; ++end) here.erase(end->stripe);
    for (; begin != begins_.end() && begin->line <= line; ++begin) here.insert(begin->stripe);
    for (const int64_t stripe : here) cell(line, stripe);
    if (!done(line)) return false;
  }
  return true;
}

}  // namespace annulus
