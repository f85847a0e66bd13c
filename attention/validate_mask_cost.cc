#include "attention/validate_mask_cost.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "attention/mask_cost.h"
#include "attention/status_macros.h"
#include "attention/validate_limit.h"

namespace annulus {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 60;

// What is planned goes through the chunks one by one.
absl::Status CheckChunks(const AttentionSpec& spec, const Limits& limits) {
  for (size_t i = 0; i < spec.masks.size(); ++i) {
    if (!spec.masks[i].chunk) continue;
    int64_t chunks = 0;
    for (const Sequence& sequence : spec.sequences) {
      chunks += sequence.q_len > 0 ? (sequence.q_len - 1) / *spec.masks[i].chunk + 1 : 0;
    }
    // A sequence of one chunk costs no more than without.
    const int64_t limit = limits.max_mask_chunks + static_cast<int64_t>(spec.sequences.size());
    RETURN_IF_ERROR(CheckLimit(absl::StrCat("spec.masks[", i, "].chunk"), chunks, limit));
  }
  return absl::OkStatus();
}

// Keys that a row sees around itself, however long the sequence.
int64_t SpanOf(const Mask& mask) {
  int64_t span = mask.chunk.value_or(kMostRows);
  if (mask.window_left && (mask.causal || mask.window_right)) {
    const int64_t right = mask.causal ? 0 : std::min(*mask.window_right, kMostRows);
    span = std::min(span, std::min(*mask.window_left, kMostRows) + right + 1);
  }
  return span;
}

// Every rank has rows in every span then: what each needs of the others is planned span by span.
absl::Status CheckStripes(const AttentionSpec& spec, const Execution& execution,
                          const Limits& limits) {
  if (execution.layout != Layout::kStriped) return absl::OkStatus();
  for (const Mask& mask : spec.masks) {
    const int64_t span = SpanOf(mask);
    int64_t spans = 0;
    for (const Sequence& sequence : spec.sequences) {
      if (sequence.q_len > span) spans += (sequence.q_len - 1) / span + 1;
    }
    RETURN_IF_ERROR(CheckLimit("execution.layout", spans, limits.max_striped_spans));
  }
  return absl::OkStatus();
}

absl::Status CheckRowIntervals(const AttentionSpec& spec, int64_t classes, const Limits& limits) {
  const bool ranges = std::any_of(spec.masks.begin(), spec.masks.end(),
                                  [](const Mask& mask) { return !mask.ranges.empty(); });
  const int64_t intervals = ranges ? limits.max_ranges_of_row : 2;
  return CheckLimit("spec.masks", spec.q_rows() * classes * intervals, limits.max_row_intervals);
}

// Range lists and heads with masks of their own.
absl::Status CheckRanges(const AttentionSpec& spec, const Execution& execution,
                         const Limits& limits) {
  // The classes first: each may have range lists of its own.
  const MaskCost classes = CostOfMasks(spec, 0);
  RETURN_IF_ERROR(CheckLimit("spec.masks", classes.head_classes, limits.max_head_classes));
  RETURN_IF_ERROR(CheckRowIntervals(spec, classes.head_classes, limits));
  const MaskCost cost = CostOfMasks(spec, limits.max_range_cuts);
  RETURN_IF_ERROR(CheckLimit("spec.masks", cost.range_cuts, limits.max_range_cuts));
  if (execution.layout != Layout::kStriped) return absl::OkStatus();
  return CheckLimit("execution.layout", cost.range_cuts, limits.max_striped_spans);
}

}  // namespace

absl::Status CheckMaskCost(const AttentionSpec& spec, const Execution& execution,
                           const Limits& limits) {
  RETURN_IF_ERROR(CheckChunks(spec, limits));
  RETURN_IF_ERROR(CheckStripes(spec, execution, limits));
  return CheckRanges(spec, execution, limits);
}

}  // namespace annulus
