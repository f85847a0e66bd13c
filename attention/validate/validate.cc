#include "attention/validate/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask_cost.h"
#include "attention/mask/mask_groups.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/limits.h"
#include "attention/spec/parallel_degrees.h"
#include "attention/spec/tensor_table.h"
#include "attention/validate/capability.h"
#include "attention/validate/validate_masks.h"
#include "base/error.h"
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

namespace {

absl::Status CheckHeads(absl::string_view field, int32_t heads, int32_t q_heads) {
  if (heads == 1 || heads == q_heads) return absl::OkStatus();
  return InvalidField("SHAPE_MISMATCH", field,
                      absl::StrCat("is ", heads, ", but must be 1 or q_heads, ", q_heads));
}

// The gradient is fp32, whatever the dtype of the bias.
absl::Status CheckBiasGradient(const AttentionSpec& spec, int64_t width, const Limits& limits) {
  if (!spec.gradients.d_bias) return absl::OkStatus();
  constexpr char kField[] = "spec.gradients.d_bias";
  if (!spec.modifiers.bias)
    return InvalidField("INVALID_MODIFIER", kField, "needs spec.modifiers.bias");
  return CheckLimit(kField, width, limits.max_pair_bytes / BytesPerElement(DataType::kFp32));
}

}  // namespace

absl::Status CheckPairInputs(const AttentionSpec& spec, const Limits& limits) {
  RETURN_IF_ERROR(CheckHeads("spec.bit_mask_heads", spec.bit_mask_heads, spec.q_heads));
  const BiasAndMaskInputs pairs(spec);
  if (spec.modifiers.bias) {
    RETURN_IF_ERROR(
        CheckHeads("spec.modifiers.bias.heads", spec.modifiers.bias->heads, spec.q_heads));
    const DataType dtype = spec.modifiers.bias->dtype;
    if (dtype > DataType::kBf16) {
      return InvalidField(
          "UNSUPPORTED_DTYPE", "spec.modifiers.bias.dtype",
          absl::StrCat("is ", DataTypeName(dtype), ", but must be fp32, fp16 or bf16"));
    }
    // Elements, not bytes: the number of keys is checked later, so a product could overflow.
    const int64_t element = pairs.has_bias ? BytesPerElement(pairs.bias_dtype) : 1;
    RETURN_IF_ERROR(
        CheckLimit("spec.modifiers.bias", pairs.width, limits.max_pair_bytes / element));
  }
  RETURN_IF_ERROR(CheckBiasGradient(spec, pairs.width, limits));
  const bool asks = std::any_of(spec.masks.begin(), spec.masks.end(),
                                [](const Mask& mask) { return mask.bit_mask; });
  if (!asks && spec.bit_mask_heads != 1) {
    return InvalidField("SHAPE_MISMATCH", "spec.bit_mask_heads",
                        "must be 1, because no mask uses a bit mask");
  }
  return asks ? CheckLimit("spec.masks", pairs.width, limits.max_pair_bytes * 8) : absl::OkStatus();
}

namespace {

constexpr size_t kMaxName = 64;

// On the wire a job has only one of the two.
absl::Status CheckOperation(const AttentionSpec& spec) {
  const auto refuse = [](absl::string_view field, absl::string_view operation) {
    return InvalidField("INVALID_REQUEST", field, absl::StrCat("is for ", operation, " jobs only"));
  };
  if (spec.operation != Operation::kForward) {
    return spec.forward.keep_state ? refuse("spec.forward.keep_state", "forward")
                                   : absl::OkStatus();
  }
  const GradientOptions& gradients = spec.gradients;
  if (gradients.d_lse) return refuse("spec.gradients.d_lse", "gradients");
  if (gradients.d_bias) return refuse("spec.gradients.d_bias", "gradients");
  if (gradients.d_out_dtype != DataType::kUnspecified)
    return refuse("spec.gradients.d_out_dtype", "gradients");
  if (!gradients.state.empty()) return refuse("spec.gradients.state", "gradients");
  if (gradients.release_state) return refuse("spec.gradients.release_state", "gradients");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckState(const AttentionSpec& spec, absl::Duration max_keep) {
  RETURN_IF_ERROR(CheckOperation(spec));
  const absl::Duration keep = spec.forward.keep_state.value_or(max_keep);
  if (spec.keeps_state() && (keep <= absl::ZeroDuration() || keep > max_keep)) {
    return InvalidField(
        "INVALID_REQUEST", "spec.forward.keep_state",
        absl::StrCat("must be more than 0 s and at most ", absl::FormatDuration(max_keep)));
  }
  if (spec.keeps_state() && spec.outputs.lse_base != LseBase::kE) {
    return InvalidField("INVALID_REQUEST", "spec.forward.keep_state",
                        "needs lse_base e: gradients take the natural-log LSE only");
  }
  const std::string& state = spec.gradients.state;
  if (state.size() > kMaxName) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.state",
                        absl::StrCat("must have at most ", kMaxName, " characters"));
  }
  if (std::any_of(state.begin(), state.end(), [](char c) { return c <= 0x20 || c >= 0x7f; })) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.state",
                        "must be printable ASCII without spaces");
  }
  if (spec.gradients.release_state && state.empty()) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.release_state",
                        "needs spec.gradients.state");
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckDtypes(const AttentionSpec& spec) {
  if (spec.dtype == DataType::kUnspecified) {
    return InvalidField("UNSUPPORTED_DTYPE", "spec.dtype", "is required");
  }
  if (spec.dtype > DataType::kFp8E4m3) {
    return RefuseValue("UNSUPPORTED_DTYPE", "spec.dtype", static_cast<int>(spec.dtype),
                       "must be a known value");
  }
  if (spec.out_dtype > DataType::kFp8E4m3) {
    return RefuseValue("UNSUPPORTED_DTYPE", "spec.out_dtype", static_cast<int>(spec.out_dtype),
                       "must be a known value");
  }
  if (spec.gradients.d_out_dtype > DataType::kFp8E4m3) {
    return RefuseValue("UNSUPPORTED_DTYPE", "spec.gradients.d_out_dtype",
                       static_cast<int>(spec.gradients.d_out_dtype), "must be a known value");
  }
  return absl::OkStatus();
}

absl::Status CheckHeads(const AttentionSpec& spec, const Limits& limits) {
  RETURN_IF_ERROR(CheckAtLeast("DIM_OVERFLOW", "spec.q_heads", spec.q_heads, 1));
  RETURN_IF_ERROR(CheckAtLeast("DIM_OVERFLOW", "spec.kv_heads", spec.kv_heads, 1));
  RETURN_IF_ERROR(CheckAtLeast("DIM_OVERFLOW", "spec.head_dim", spec.head_dim, 1));
  RETURN_IF_ERROR(CheckAtLeast("DIM_OVERFLOW", "spec.head_dim_v", spec.head_dim_v, 0));
  RETURN_IF_ERROR(CheckLimit("spec.q_heads", spec.q_heads, limits.max_heads));
  RETURN_IF_ERROR(CheckLimit("spec.kv_heads", spec.kv_heads, limits.max_heads));
  RETURN_IF_ERROR(CheckLimit("spec.head_dim", spec.head_dim, limits.max_head_dim));
  RETURN_IF_ERROR(CheckLimit("spec.head_dim_v", spec.head_dim_v, limits.max_head_dim));
  if (spec.q_heads % spec.kv_heads == 0) return absl::OkStatus();
  return RefuseValue("SHAPE_MISMATCH", "spec.q_heads", spec.q_heads,
                     absl::StrCat("must be a multiple of spec.kv_heads, ", spec.kv_heads));
}

std::string SequencePath(size_t index, absl::string_view field) {
  return absl::StrCat("spec.sequences[", index, "].", field);
}

absl::Status CheckSequence(const Sequence& sequence, size_t index) {
  if (sequence.q_len < 0) {
    return RefuseValue("DIM_OVERFLOW", SequencePath(index, "q_len"), sequence.q_len,
                       "must be at least 0");
  }
  if (sequence.kv_len < 0) {
    return RefuseValue("DIM_OVERFLOW", SequencePath(index, "kv_len"), sequence.kv_len,
                       "must be at least 0");
  }
  if (sequence.layer != 0 && sequence.session.empty()) {
    return RefuseValue("SHAPE_MISMATCH", SequencePath(index, "layer"), sequence.layer,
                       "a layer needs a session");
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const AttentionSpec& spec, const Limits& limits) {
  if (spec.sequences.empty()) {
    return InvalidField("SHAPE_MISMATCH", "spec.sequences", "must not be empty");
  }
  RETURN_IF_ERROR(CheckLimit("spec.sequences", static_cast<int64_t>(spec.sequences.size()),
                             limits.max_sequences));
  constexpr char kTooMany[] = "the sum of the lengths must be at most 2^63 - 1";
  int64_t q_rows = 0, kv_rows = 0;
  for (size_t i = 0; i < spec.sequences.size(); ++i) {
    const Sequence& sequence = spec.sequences[i];
    RETURN_IF_ERROR(CheckSequence(sequence, i));
    if (__builtin_add_overflow(q_rows, sequence.q_len, &q_rows)) {
      return RefuseValue("DIM_OVERFLOW", SequencePath(i, "q_len"), sequence.q_len, kTooMany);
    }
    if (__builtin_add_overflow(kv_rows, sequence.kv_len, &kv_rows)) {
      return RefuseValue("DIM_OVERFLOW", SequencePath(i, "kv_len"), sequence.kv_len, kTooMany);
    }
  }
  return absl::OkStatus();
}

// Checks rows, pairs and bytes, so later computations stay below 64 bits and the limits.
absl::Status CheckSizes(const AttentionSpec& spec, const Limits& limits) {
  const int64_t q_rows = spec.q_rows(), kv_rows = spec.kv_rows();
  int64_t product = 0;
  if (__builtin_mul_overflow(q_rows, kv_rows, &product) ||
      __builtin_mul_overflow(product, int64_t{spec.q_heads}, &product)) {
    return RefuseValue("DIM_OVERFLOW", "spec.sequences", absl::StrCat(q_rows, " x ", kv_rows),
                       "query rows x key rows x heads must be at most 2^63 - 1");
  }
  std::vector<TensorInfo> tensors = TensorTable(spec);
  for (const TensorInfo& tensor : tensors) {
    const int64_t rows = tensor.rows == RowSpace::kQuery ? q_rows : kv_rows;
    if (__builtin_mul_overflow(rows, tensor.row_bytes(), &product)) {
      return RefuseValue(
          "DIM_OVERFLOW", "spec.sequences", rows,
          absl::StrCat("rows x bytes of ", TensorName(tensor.id), " must be at most 2^63 - 1"));
    }
    RETURN_IF_ERROR(CheckLimit("spec.sequences", rows, limits.max_rows));
    RETURN_IF_ERROR(CheckLimit("spec.sequences", product, limits.max_tensor_bytes));
  }
  RETURN_IF_ERROR(CheckLimit("spec.sequences", q_rows, limits.max_rows));
  return CheckLimit("spec.sequences", kv_rows, limits.max_rows);
}

absl::Status CheckScale(const AttentionSpec& spec) {
  if (!spec.scale || *spec.scale == 0) return absl::OkStatus();
  // Beyond these, queries or scores leave the normal numbers of fp32 even if q·k is far inside
  // them.
  const double magnitude = std::fabs(*spec.scale);
  if (magnitude >= 0x1p-64 && magnitude <= 0x1p64) return absl::OkStatus();  // NaN fails this test.
  return RefuseValue("INVALID_SCALE", "spec.scale", *spec.scale,
                     "must be 0, or of a magnitude of at least 2^-64 and at most 2^64");
}

absl::Status CheckPerHead(absl::string_view field, const std::vector<float>& values,
                          int32_t q_heads) {
  if (values.empty()) return absl::OkStatus();
  if (values.size() != static_cast<size_t>(q_heads)) {
    return RefuseValue(
        "SHAPE_MISMATCH", field, values.size(),
        absl::StrCat("there must be one number for each of ", q_heads, " query heads"));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return RefuseValue("INVALID_MODIFIER", absl::StrCat(field, "[", i, "]"), values[i],
                       "must be finite");
  }
  return absl::OkStatus();
}

absl::Status CheckModifiers(const AttentionSpec& spec) {
  const ScoreModifiers& modifiers = spec.modifiers;
  // Beyond these, a score divided by the cap, or the cap's reciprocal, is not a normal fp32 number.
  if (modifiers.soft_cap && !(*modifiers.soft_cap >= 0x1p-64 && *modifiers.soft_cap <= 0x1p64)) {
    return RefuseValue("INVALID_MODIFIER", "spec.modifiers.soft_cap", *modifiers.soft_cap,
                       "must be at least 2^-64 and at most 2^64");
  }
  RETURN_IF_ERROR(
      CheckPerHead("spec.modifiers.alibi_slopes", modifiers.alibi_slopes, spec.q_heads));
  RETURN_IF_ERROR(CheckPerHead("spec.modifiers.sinks", modifiers.sinks, spec.q_heads));
  if (spec.dropout && !(spec.dropout->rate >= 0 && spec.dropout->rate < 1)) {
    return RefuseValue("INVALID_MODIFIER", "spec.dropout.rate", spec.dropout->rate,
                       "must be at least 0 and below 1");
  }
  return absl::OkStatus();
}

absl::Status CheckDegreeLimits(const Execution& execution, const Limits& limits) {
  const struct {
    absl::string_view field;
    int32_t value;
  } degrees[] = {{"execution.ulysses_degree", execution.ulysses_degree},
                 {"execution.ring_degree", execution.ring_degree},
                 {"execution.inner_ring_degree", execution.inner_ring_degree}};
  for (const auto& degree : degrees) {
    RETURN_IF_ERROR(CheckAtLeast("INVALID_EXECUTION", degree.field, degree.value, 0));
    RETURN_IF_ERROR(CheckLimit(degree.field, degree.value, limits.max_world_size));
  }
  const int64_t ranks = int64_t{execution.ulysses_degree} * execution.ring_degree;
  return CheckLimit("execution.ring_degree", ranks, limits.max_world_size);
}

// A deterministic job processes keys tile by tile, and each stripe is a task.
absl::Status CheckFoldStripe(const AttentionSpec& spec, int64_t stripe) {
  if (stripe % kFoldTile != 0) {
    return RefuseValue(
        "INVALID_EXECUTION", "execution.stripe", stripe,
        absl::StrCat("must be a multiple of ", kFoldTile, " with spec.deterministic"));
  }
  return CheckLimit("execution.stripe", std::max(spec.q_rows(), spec.kv_rows()) / stripe,
                    kMaxFoldStripes);
}

absl::Status CheckExecution(const AttentionSpec& spec, const Execution& execution,
                            const Limits& limits) {
  RETURN_IF_ERROR(CheckEnum("execution.strategy", execution.strategy, kLastStrategy));
  RETURN_IF_ERROR(CheckEnum("execution.layout", execution.layout, kLastLayout));
  RETURN_IF_ERROR(
      CheckAtLeast("INVALID_EXECUTION", "execution.world_size", execution.world_size, 0));
  RETURN_IF_ERROR(CheckLimit("execution.world_size", execution.world_size, limits.max_world_size));
  RETURN_IF_ERROR(CheckEnum("execution.head_deal", execution.head_deal, kLastHeadAssignment));
  RETURN_IF_ERROR(CheckDegreeLimits(execution, limits));
  RETURN_IF_ERROR(CheckAtLeast("INVALID_EXECUTION", "execution.stripe", execution.stripe, 0));
  if (execution.priority < -kMaxPriority || execution.priority > kMaxPriority) {
    return RefuseValue("INVALID_EXECUTION", "execution.priority", execution.priority,
                       absl::StrCat("must be between -", kMaxPriority, " and ", kMaxPriority));
  }
  if (execution.stripe != 0 && execution.layout != Layout::kStriped) {
    return RefuseValue("INVALID_EXECUTION", "execution.stripe", execution.stripe,
                       "only the striped layout has stripes");
  }
  if (spec.deterministic && execution.stripe != 0) {
    RETURN_IF_ERROR(CheckFoldStripe(spec, execution.stripe));
  }
  if (execution.layout == Layout::kZigzagPerSequence) {
    const auto sequences = static_cast<int64_t>(spec.sequences.size());
    RETURN_IF_ERROR(CheckLimit("execution.layout", sequences, limits.max_cut_sequences));
    // An open world size is chosen within the limit (attention/planning/choose_execution.h).
    RETURN_IF_ERROR(CheckLimit("execution.layout", sequences * std::max(1, execution.world_size),
                               kMaxSequenceCuts));
  }
  return CheckDegrees(execution);
}

}  // namespace

absl::Status Validate(const AttentionSpec& spec, const Execution& execution, const Limits& limits) {
  RETURN_IF_ERROR(CheckDtypes(spec));
  RETURN_IF_ERROR(CheckEnum("spec.operation", spec.operation, Operation::kGradients));
  RETURN_IF_ERROR(CheckEnum("spec.outputs.lse_base", spec.outputs.lse_base, LseBase::k2));
  RETURN_IF_ERROR(CheckEnum("spec.arithmetic", spec.arithmetic, Arithmetic::kBf16x3));
  RETURN_IF_ERROR(CheckHeads(spec, limits));
  RETURN_IF_ERROR(CheckSequences(spec, limits));
  RETURN_IF_ERROR(CheckPairInputs(spec, limits));
  RETURN_IF_ERROR(CheckSizes(spec, limits));
  RETURN_IF_ERROR(CheckScale(spec));
  RETURN_IF_ERROR(CheckState(spec, limits.max_keep_state));
  RETURN_IF_ERROR(CheckModifiers(spec));
  RETURN_IF_ERROR(CheckMasks(spec, limits));
  RETURN_IF_ERROR(CheckExecution(spec, execution, limits));
  RETURN_IF_ERROR(CheckMaskCost(spec, execution, limits));
  return CheckServed(spec, execution);
}

}  // namespace annulus
