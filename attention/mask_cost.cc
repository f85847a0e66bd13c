#include "attention/mask_cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/mask_groups.h"
#include "attention/mask_rule.h"
#include "attention/row_pieces.h"

namespace annulus {

MaskCost CostOfMasks(const AttentionSpec& spec, int64_t most_cuts) {
  const MaskGroups groups(spec);
  MaskCost cost;
  cost.head_classes = static_cast<int64_t>(groups.first_of_class.size());
  std::vector<Mask> masks = spec.masks;
  for (Mask& mask : masks) ClampFar(&mask);
  std::map<int32_t, RangeStrips> strips;
  std::vector<std::vector<int32_t>> ranged(groups.mask_of_head.size());
  for (size_t g = 0; g < ranged.size(); ++g) {
    for (const int32_t mask : groups.MasksOf(static_cast<int32_t>(g))) {
      if (mask == static_cast<int32_t>(masks.size()) || masks[mask].ranges.empty()) {
        continue;
      }
      ranged[g].push_back(mask);
      if (strips.count(mask) == 0) strips.emplace(mask, RangeStrips(masks[mask].ranges));
    }
  }
  std::map<std::tuple<int32_t, int64_t, int64_t>, int64_t> counted;
  for (size_t s = 0; s < spec.sequences.size(); ++s) {
    const Sequence& sequence = spec.sequences[s];
    for (const int32_t mask : ranged[groups.of_sequence[s]]) {
      if (cost.range_cuts > most_cuts) return cost;
      const auto [at, added] = counted.try_emplace({mask, sequence.q_len, sequence.kv_len}, 0);
      if (added) {
        at->second = CountCuts(masks[mask], strips.at(mask), sequence.q_len, sequence.kv_len,
                               most_cuts - cost.range_cuts);
      }
      // Also what has nothing to cut was looked at.
      cost.range_cuts += std::max<int64_t>(1, at->second);
    }
  }
  return cost;
}

}  // namespace annulus
