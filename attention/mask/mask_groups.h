#ifndef ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_
#define ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/spec/spec.h"

namespace annulus {

// Who follows which mask. AttentionSpec::masks is a run of groups: a group is one mask without
// query_heads, then the masks that name query_heads (the first group may lack the former).
// Sequence::mask is the index of the first mask of a group. A head follows the mask of the group
// that names it, else the one without query_heads, else sees every key of its sequence.
struct MaskGroups {
  // Heads that masks name exist, and sequences name first masks of groups.
  explicit MaskGroups(const AttentionSpec& spec);

  std::vector<int32_t> of_sequence;
  // [group][head]: index of a mask; spec.masks.size() for none. Masks that hide the same have one
  // number.
  std::vector<std::vector<int32_t>> mask_of_head;
  // Heads that see the same keys in every sequence form a class, numbered by its first head.
  std::vector<int32_t> class_of_head, first_of_class;

  // Calls fn(mask, sequence) for each mask of the spec that some head of a sequence follows, each
  // once.
  void ForEachFollowed(const AttentionSpec& spec,
                       absl::FunctionRef<void(int32_t, const Sequence&)> fn) const;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_
