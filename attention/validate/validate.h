#ifndef ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_
#define ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"

namespace annulus {

// Hard limits of a deployment. A request past one is INVALID_ARGUMENT / LIMIT_EXCEEDED.
struct Limits {
  int64_t max_rows = int64_t{1} << 26;  // Of a packed tensor.
  int64_t max_sequences = 65536;
  int32_t max_heads = 1024;
  int32_t max_head_dim = 256;
  int64_t max_tensor_bytes = int64_t{1} << 40;
  int32_t max_world_size = 64;
  int32_t max_masks = 1024;
  int32_t max_mask_ranges = 4096;         // Of one mask.
  int64_t max_ranges = int64_t{1} << 18;  // Of all masks: what is planned holds 150 bytes for each.
  int32_t max_ranges_of_row = 16;         // Of one mask, over the same query row.
  int64_t max_mask_chunks = 16384;        // Of one mask, in all query rows that follow it.
  // Windows and chunks side by side, of all masks together, or range cuts, under the striped layout
  // (attention/mask/mask_cost.h).
  int64_t max_striped_spans = 256;
  int64_t max_head_classes = 64;              // Sets of query heads with masks of their own.
  int64_t max_range_cuts = int64_t{1} << 17;  // attention/mask/mask_cost.h
  // Query rows × classes of heads × IntervalsOfRow: kernels ask the mask for each, and hold 16
  // bytes for each of a call's.
  int64_t max_row_intervals = int64_t{1} << 27;
  int64_t max_cut_sequences = 1024;  // That the layout zigzag-per-sequence cuts.
  // Of a bias or a bit mask, one head of one row: what a chunk holds.
  int64_t max_pair_bytes = 1 << 20;
  // A client knows none.
  absl::Duration max_keep_state = absl::InfiniteDuration();
};

// Intervals of keys that a row may see with one head: 2, and max_ranges_of_row where some mask has
// a range list.
int64_t IntervalsOfRow(const AttentionSpec& spec, const Limits& limits);

// The only validator of requests: every entry (Attend, RunJob, PlanJob, AttendInline, the command
// line) calls it before a tensor byte moves. Checks shapes, sums and products for overflow, masks,
// scale, enums, limits, and what the capability table serves (attention/validate/capability.h).
// Knows nothing of workers or budgets. A request that passes can be planned, placed and run without
// a number overflowing. The first fault found is told.
//
// Errors, each with reason and field path ("spec.…", "execution.…"). INVALID_ARGUMENT with
//
// - UNSUPPORTED_DTYPE: no dtype, or no known one
// - UNKNOWN_ENUM: a value that is not of its enum
// - DIM_OVERFLOW: a size that is negative, or zero where it must not be; sums and products past 64
//   bits
// - SHAPE_MISMATCH: sizes that do not fit one another; no sequence
// - LIMIT_EXCEEDED: past one of `limits` (metadata: limit, requested)
// - INVALID_SCALE: the scale is neither 0 nor of a magnitude of 2^-64 to 2^64
// - INVALID_MODIFIER: soft cap, slopes, sinks or dropout rate out of range; the gradient of a bias
//   that is not there
// - INVALID_MASK: fields of a mask, or the index of one, out of range; a mask of a group that no
//   sequence names
// - INVALID_EXECUTION: fields of the execution out of range or at odds
// - INVALID_REQUEST: a time for which state is to be kept, or the name of a state, that cannot be;
//   an option of the other operation
//
// and UNIMPLEMENTED with NOT_SERVED for what the table does not serve.
absl::Status Validate(const AttentionSpec& spec, const Execution& execution, const Limits& limits);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_VALIDATE_VALIDATE_H_
