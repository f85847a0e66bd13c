#include "attention/mask/mask_cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/mask/interval_pieces.h"
#include "attention/mask/mask_rule.h"

namespace annulus {
namespace {

// The most ranks that can own some of `rows` consecutive rows, wherever the rows begin.
int64_t RanksOf(int64_t rows, int64_t stripe, int32_t world_size) {
  return rows == 0 ? 0 : std::min<int64_t>(world_size, (rows + stripe - 2) / stripe + 1);
}

}  // namespace

int64_t CountRangeCuts(const AttentionSpec& spec, const MaskGroups& groups, int64_t most) {
  std::vector<Mask> masks = spec.masks;
  for (Mask& mask : masks) ClampFar(&mask);
  std::map<int32_t, RangeBands> bands;
  int64_t cuts = 0;
  std::map<std::tuple<int32_t, int64_t, int64_t>, int64_t> counted;
  groups.ForEachFollowed(spec, [&](int32_t number, const Sequence& sequence) {
    const Mask& mask = masks[number];
    if (mask.ranges.empty() || cuts > most) return;
    const auto [at, added] = counted.try_emplace({number, sequence.q_len, sequence.kv_len}, 0);
    if (added) {
      const RangeBands& own = bands.try_emplace(number, mask.ranges).first->second;
      at->second = CountCuts(mask, own, sequence.q_len, sequence.kv_len, most - cuts);
    }
    // A pair with nothing to cut costs a visit too.
    cuts += std::max<int64_t>(1, at->second);
  });
  return cuts;
}

int64_t StripedMeetings(const AttentionSpec& spec, const MaskGroups& groups, int64_t stripe,
                        int32_t world_size) {
  if (world_size == 1) return 0;
  int64_t meetings = 0;
  for (size_t s = 0; s < spec.sequences.size() && meetings <= kMaxStripedMeetings; ++s) {
    const Sequence& sequence = spec.sequences[s];
    const int64_t pairs =
        RanksOf(sequence.q_len, stripe, world_size) * RanksOf(sequence.kv_len, stripe, world_size);
    if (pairs == 0) continue;
    for (const int32_t head : groups.first_of_class) {
      const size_t mask = groups.mask_of_head[groups.of_sequence[s]][head];
      const int64_t spans =
          mask < spec.masks.size() ? SpansOf(spec.masks[mask], sequence.q_len) : 0;
      meetings += pairs * std::max<int64_t>(1, spans);
    }
  }
  return meetings;
}

int64_t SpanOf(const Mask& mask) {
  static_assert(kMaskFields == 10, "a new field may change the span");
  int64_t span = mask.chunk.value_or(kMostRows);
  if (mask.window_left && (mask.causal || mask.window_right)) {
    const int64_t right = mask.causal ? 0 : std::min(*mask.window_right, kMostRows);
    span = std::min(span, std::min(*mask.window_left, kMostRows) + right + 1);
  }
  return span;
}

int64_t SpansOf(const Mask& mask, int64_t q_len) {
  const int64_t span = SpanOf(mask);
  return q_len > span ? (q_len - 1) / span + 1 : 0;
}

}  // namespace annulus
