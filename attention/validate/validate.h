#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"

namespace annulus {

// Hard limits of a deployment. A request above one is refused with INVALID_ARGUMENT /
// LIMIT_EXCEEDED.
struct Limits {
  int64_t max_rows = int64_t{1} << 26;  // Rows of a packed tensor.
  int64_t max_sequences = 65536;
  int32_t max_heads = 1024;
  int32_t max_head_dim = 256;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int32_t max_world_size = 64;
  int32_t max_masks = 1024;
  int32_t max_mask_ranges = 4096;         // Ranges of one mask.
  int64_t max_ranges = int64_t{1} << 18;  // Ranges of all masks. A plan holds 150 bytes for each.
  int32_t max_ranges_of_row = 16;         // Ranges of one mask over the same query row.
  int64_t max_mask_chunks = 16384;        // Chunks of one mask, in all sequences that follow it.
  // Under the striped layout: windows and chunks side by side of all masks together, and also range
  // cuts (attention/mask/mask_cost.h).
  int64_t max_striped_spans = 256;
  int64_t max_head_classes = 64;              // Classes of query heads with their own masks.
  int64_t max_range_cuts = int64_t{1} << 17;  // CountRangeCuts (attention/mask/mask_cost.h).
  // Query rows × classes of heads × IntervalsOfRow. Kernels evaluate the mask for each, and hold 16
  // bytes for each one of a call.
  int64_t max_row_intervals = int64_t{1} << 27;
  int64_t max_cut_sequences = 1024;  // Sequences under the layout zigzag-per-sequence.
  // Bytes of one row and head of a bias or a bit mask: they must fit into a chunk.
  int64_t max_pair_bytes = 1 << 20;
  // The longest time that state may be kept. Clients use the default, since only the server has a
  // limit.
  absl::Duration max_keep_state = absl::InfiniteDuration();
};

// The limit of key intervals that a row sees with one head: 2, or max_ranges_of_row if some mask
// has a range list.
int64_t IntervalsOfRow(const AttentionSpec& spec, const Limits& limits);

// The only validator of requests. Every entry calls it before any tensor data moves: the calls
// Attend, AttendMany, RunJob, PlanJob and AttendInline, and the command line. MergePartials has
// rules of its own (attention/numerics/merge_partials.h).
//
// Checks shapes, overflow of sums and products, masks, scale, enums, limits, and the capability
// table (attention/validate/capability.h). Does not consider workers or memory budgets. A request
// that passes can be planned, placed and run without overflow of any number. Pure. Returns the
// first fault found.
//
// Each error has a reason and a field path ("spec.…", "execution.…"). INVALID_ARGUMENT with
//
// - UNSUPPORTED_DTYPE: a missing or unknown dtype, or a bias of a dtype other than fp32, fp16 and
//   bf16
// - UNKNOWN_ENUM: a value outside its enum
// - DIM_OVERFLOW: a size that is negative, or zero where it must not be; a sum or product above 64
//   bits
// - SHAPE_MISMATCH: sizes that do not match one another; no sequence
// - LIMIT_EXCEEDED: above one of `limits` (metadata: limit, requested)
// - INVALID_SCALE: the scale is not 0, and its magnitude is not in [2^-64, 2^64]
// - INVALID_MODIFIER: soft cap, slopes, sinks or dropout rate out of range; the gradient of a
//   missing bias
// - INVALID_MASK: a field of a mask or a mask index out of range; a group of masks that no sequence
//   names
// - INVALID_EXECUTION: fields of the execution out of range or contradictory
// - INVALID_REQUEST: an invalid time to keep state or an invalid name of a state; an option of the
//   other operation
//
// and UNIMPLEMENTED / NOT_SERVED for features that the table does not serve.
absl::Status Validate(const AttentionSpec& spec, const Execution& execution, const Limits& limits);

// The part of Validate() that bounds the cost of planning. INVALID_ARGUMENT / LIMIT_EXCEEDED, in
// this order: classes of heads, row intervals, chunks, spans and rank pairs under stripes, cuts of
// range lists. Chunks, spans and cuts count in each sequence that follows the mask. Requires:
// masks, lengths and the execution's enums have passed their own checks.
absl::Status CheckMaskCost(const AttentionSpec& spec, const Execution& execution,
                           const Limits& limits);

// The part of Validate() that checks bias and bit mask, before the sizes of tensors.
// INVALID_ARGUMENT with SHAPE_MISMATCH, UNSUPPORTED_DTYPE, LIMIT_EXCEEDED or INVALID_MODIFIER.
// Requires: heads and sequences have passed their own checks.
absl::Status CheckPairInputs(const AttentionSpec& spec, const Limits& limits);

// The part of Validate() that checks state. It checks, in this order, options of the other
// operation, the time to keep state (more than 0, at most max_keep), and the name of the state
// used. INVALID_ARGUMENT / INVALID_REQUEST. The coordinator checks that the state exists and fits.
absl::Status CheckState(const AttentionSpec& spec, absl::Duration max_keep);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_
