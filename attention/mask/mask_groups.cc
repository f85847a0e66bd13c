#include "attention/mask/mask_groups.h"

#include <map>
#include <set>
#include <utility>

namespace annulus {

MaskGroups::MaskGroups(const AttentionSpec& spec) {
  const int32_t none = static_cast<int32_t>(spec.masks.size());
  const Mask full;
  std::map<decltype(RuleOf(full)), int32_t> numbers;
  numbers.try_emplace(RuleOf(full), none);
  std::vector<int32_t> group_of_mask;
  for (int32_t i = 0; i < none; ++i) {
    const Mask& mask = spec.masks[i];
    const int32_t number = numbers.try_emplace(RuleOf(mask), i).first->second;
    if (mask.query_heads.empty() || mask_of_head.empty()) {
      mask_of_head.emplace_back(spec.q_heads, mask.query_heads.empty() ? number : none);
    }
    group_of_mask.push_back(static_cast<int32_t>(mask_of_head.size()) - 1);
    for (const int32_t head : mask.query_heads) mask_of_head.back()[head] = number;
  }
  if (mask_of_head.empty()) mask_of_head.emplace_back(spec.q_heads, none);
  for (const Sequence& sequence : spec.sequences) {
    of_sequence.push_back(none == 0 ? 0 : group_of_mask[sequence.mask]);
  }
  std::map<std::vector<int32_t>, int32_t> classes;
  for (int32_t head = 0; head < spec.q_heads; ++head) {
    std::vector<int32_t> masks;
    for (const std::vector<int32_t>& of_head : mask_of_head) masks.push_back(of_head[head]);
    const int32_t next = static_cast<int32_t>(first_of_class.size());
    const auto [at, added] = classes.try_emplace(std::move(masks), next);
    if (added) first_of_class.push_back(head);
    class_of_head.push_back(at->second);
  }
}

void MaskGroups::ForEachFollowed(const AttentionSpec& spec,
                                 absl::FunctionRef<void(int32_t, const Sequence&)> fn) const {
  const auto none = static_cast<int32_t>(spec.masks.size());
  std::vector<std::set<int32_t>> masks;  // By group.
  for (const std::vector<int32_t>& of_head : mask_of_head) {
    masks.emplace_back(of_head.begin(), of_head.end()).erase(none);
  }
  for (size_t s = 0; s < spec.sequences.size(); ++s) {
    for (const int32_t mask : masks[of_sequence[s]]) fn(mask, spec.sequences[s]);
  }
}

}  // namespace annulus
