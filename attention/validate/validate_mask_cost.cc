#include "attention/validate/validate_mask_cost.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask_cost.h"
#include "attention/mask/mask_groups.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/limits.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// Planning visits the chunks one by one.
absl::Status CheckChunks(const AttentionSpec& spec, const MaskGroups& groups,
                         const Limits& limits) {
  std::vector<int64_t> chunks(spec.masks.size()), followers(spec.masks.size());
  groups.ForEachFollowed(spec, [&](int32_t mask, const Sequence& sequence) {
    if (!spec.masks[mask].chunk || sequence.q_len == 0) return;
    chunks[mask] += (sequence.q_len - 1) / *spec.masks[mask].chunk + 1;
    ++followers[mask];
  });
  for (size_t i = 0; i < chunks.size(); ++i) {
    // A sequence of one chunk costs no more than without the mask.
    const int64_t limit = limits.max_mask_chunks + followers[i];
    RETURN_IF_ERROR(CheckLimit(absl::StrCat("spec.masks[", i, "].chunk"), chunks[i], limit));
  }
  return absl::OkStatus();
}

// Under stripes every rank has rows in every span, and in every sequence with at least as many rows
// as ranks. Planning computes what each rank needs span by span and sequence by sequence.
absl::Status CheckStripes(const AttentionSpec& spec, const MaskGroups& groups,
                          const Execution& execution, const Limits& limits) {
  if (execution.layout != Layout::kStriped) return absl::OkStatus();
  int64_t spans = 0;
  groups.ForEachFollowed(spec, [&](int32_t mask, const Sequence& sequence) {
    spans += SpansOf(spec.masks[mask], sequence.q_len);
  });
  RETURN_IF_ERROR(CheckLimit("execution.layout", spans, limits.max_striped_spans));
  // An open world size is chosen within the limit (attention/planning/choose_execution.h).
  const int32_t world = std::max(1, execution.world_size);
  const int64_t stripe = execution.stripe > 0 ? execution.stripe : StripeOf(spec);
  return CheckLimit("execution.layout", StripedMeetings(spec, groups, stripe, world),
                    kMaxStripedMeetings);
}

absl::Status CheckRowIntervals(const AttentionSpec& spec, int64_t classes, const Limits& limits) {
  return CheckLimit("spec.masks", spec.q_rows() * classes * IntervalsOfRow(spec, limits),
                    limits.max_row_intervals);
}

absl::Status CheckRanges(const AttentionSpec& spec, const MaskGroups& groups,
                         const Execution& execution, const Limits& limits) {
  const int64_t cuts = CountRangeCuts(spec, groups, limits.max_range_cuts);
  RETURN_IF_ERROR(CheckLimit("spec.masks", cuts, limits.max_range_cuts));
  if (execution.layout != Layout::kStriped) return absl::OkStatus();
  return CheckLimit("execution.layout", cuts, limits.max_striped_spans);
}

}  // namespace

int64_t IntervalsOfRow(const AttentionSpec& spec, const Limits& limits) {
  const bool ranges = std::any_of(spec.masks.begin(), spec.masks.end(),
                                  [](const Mask& mask) { return !mask.ranges.empty(); });
  return ranges ? limits.max_ranges_of_row : 2;
}

absl::Status CheckMaskCost(const AttentionSpec& spec, const Execution& execution,
                           const Limits& limits) {
  const MaskGroups groups(spec);
  // Check the classes first: each may have chunks and range lists of its own.
  const auto classes = static_cast<int64_t>(groups.first_of_class.size());
  RETURN_IF_ERROR(CheckLimit("spec.masks", classes, limits.max_head_classes));
  RETURN_IF_ERROR(CheckRowIntervals(spec, classes, limits));
  RETURN_IF_ERROR(CheckChunks(spec, groups, limits));
  RETURN_IF_ERROR(CheckStripes(spec, groups, execution, limits));
  return CheckRanges(spec, groups, execution, limits);
}

}  // namespace annulus
