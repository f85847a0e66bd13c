#include "attention/mask_cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/mask_rule.h"
#include "attention/row_pieces.h"

namespace annulus {
namespace {

// Ranks that have some of so many rows side by side, wherever these begin.
int64_t RanksOf(int64_t rows, int64_t stripe, int32_t world_size) {
  return rows == 0 ? 0 : std::min<int64_t>(world_size, (rows + stripe - 2) / stripe + 1);
}

}  // namespace

int64_t CountRangeCuts(const AttentionSpec& spec, const MaskGroups& groups, int64_t most) {
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
    }
  }
  int64_t cuts = 0;
  std::map<std::tuple<int32_t, int64_t, int64_t>, int64_t> counted;
  for (size_t s = 0; s < spec.sequences.size(); ++s) {
    const Sequence& sequence = spec.sequences[s];
    for (const int32_t mask : ranged[groups.of_sequence[s]]) {
      if (cuts > most) return cuts;
      const auto [at, added] = counted.try_emplace({mask, sequence.q_len, sequence.kv_len}, 0);
      if (added) {
        if (strips.count(mask) == 0) strips.emplace(mask, RangeStrips(masks[mask].ranges));
        at->second =
            CountCuts(masks[mask], strips.at(mask), sequence.q_len, sequence.kv_len, most - cuts);
      }
      // Also what has nothing to cut was looked at.
      cuts += std::max<int64_t>(1, at->second);
    }
  }
  return cuts;
}

int64_t StripedMeetings(const AttentionSpec& spec, const MaskGroups& groups, int64_t stripe,
                        int32_t world_size) {
  if (world_size == 1) return 0;
  int64_t meetings = 0;
  for (const Sequence& sequence : spec.sequences) {
    meetings +=
        RanksOf(sequence.q_len, stripe, world_size) * RanksOf(sequence.kv_len, stripe, world_size);
  }
  return meetings * static_cast<int64_t>(groups.first_of_class.size());
}

int64_t SpanOf(const Mask& mask) {
  int64_t span = mask.chunk.value_or(kMostRows);
  if (mask.window_left && (mask.causal || mask.window_right)) {
    const int64_t right = mask.causal ? 0 : std::min(*mask.window_right, kMostRows);
    span = std::min(span, std::min(*mask.window_left, kMostRows) + right + 1);
  }
  return span;
}

}  // namespace annulus
