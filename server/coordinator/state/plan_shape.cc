#include "server/coordinator/state/plan_shape.h"

#include <algorithm>
#include <map>
#include <vector>

#include "attention/mask/mask_cost.h"
#include "attention/mask/mask_groups.h"

namespace annulus {
namespace {

void AddFollowed(const Mask& mask, const Sequence& sequence, double heads, PlanShape* shape) {
  static_assert(kMaskFields == 10, "a new field may change what a plan costs");
  const int64_t span = SpanOf(mask);
  const int64_t everywhere = std::min(mask.prefix.value_or(0), kMostRows) +
                             std::min(mask.always_visible.value_or(0), kMostRows);
  const int64_t seen = std::min(sequence.kv_len, span + everywhere);
  shape->pairs += heads * static_cast<double>(sequence.q_len) * static_cast<double>(seen);
  shape->pieces += static_cast<int64_t>(mask.ranges.size());
  if (mask.chunk && sequence.q_len > *mask.chunk)
    shape->pieces += (sequence.q_len - 1) / *mask.chunk + 1;
  shape->spans += SpansOf(mask, sequence.q_len);
  ++shape->followed;
}

}  // namespace

PlanShape PlanShapeOf(const AttentionSpec& spec) {
  const MaskGroups groups(spec);
  // For each group: the number of heads by the mask that they follow.
  std::vector<std::map<int32_t, double>> heads(groups.mask_of_head.size());
  for (size_t group = 0; group < heads.size(); ++group) {
    for (const int32_t mask : groups.mask_of_head[group]) ++heads[group][mask];
  }
  PlanShape shape;
  shape.classes = static_cast<int64_t>(groups.first_of_class.size());
  const Mask full;
  for (size_t s = 0; s < spec.sequences.size(); ++s) {
    for (const auto& [mask, count] : heads[groups.of_sequence[s]]) {
      const bool any = mask < static_cast<int32_t>(spec.masks.size());
      AddFollowed(any ? spec.masks[mask] : full, spec.sequences[s], count, &shape);
    }
  }
  shape.rows = static_cast<double>(spec.q_rows()) * spec.q_heads;
  shape.keys = std::min(static_cast<double>(spec.kv_rows()) * spec.kv_heads,
                        shape.pairs * spec.kv_heads / spec.q_heads);
  return shape;
}

}  // namespace annulus
