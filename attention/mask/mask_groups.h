#ifndef ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_
#define ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/spec/spec.h"

namespace annulus {

// The mask that each head of each sequence follows. AttentionSpec::masks is a list of groups. A
// group is one mask without query_heads, then the masks that name query_heads; the first group may
// lack the former. Sequence::mask is the index of the first mask of a group.
//
// A head follows the mask of the group that names it, else the group's mask without query_heads. If
// there is neither, it sees every key of its sequence.
struct MaskGroups {
  // Requires: heads that masks name exist, and Sequence::mask is the first mask of a group.
  explicit MaskGroups(const AttentionSpec& spec);

  std::vector<int32_t> of_sequence;  // The group of each sequence.
  // [group][head]: the index of a mask, or spec.masks.size() for none. Masks that hide the same
  // keys share one index.
  std::vector<std::vector<int32_t>> mask_of_head;
  // The class of each head, and the first head of each class. Heads that see the same keys in every
  // sequence form a class; classes are numbered in the order of their first heads.
  std::vector<int32_t> class_of_head, first_of_class;

  // Calls fn(mask, sequence) once for each pair of a sequence and a mask of the spec that some head
  // follows there.
  void ForEachFollowed(const AttentionSpec& spec,
                       absl::FunctionRef<void(int32_t, const Sequence&)> fn) const;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_MASK_MASK_GROUPS_H_
