#ifndef ANNULUS_ATTENTION_SPEC_SPEC_H_
#define ANNULUS_ATTENTION_SPEC_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "attention/spec/dtype.h"
#include "attention/spec/execution.h"

namespace annulus {

// An attention request: mirrors annulus.v1.AttentionSpec without protobuf. Nothing here is checked;
// Validate() in attention/validate/validate.h is the only validator.

// The operation of a job.
enum class Operation : uint8_t { kForward = 0, kGradients = 1 };
struct ForwardOptions {
  // How long the workers keep the state for gradients jobs. Absent: they do not keep it.
  std::optional<absl::Duration> keep_state;
};
struct GradientOptions {
  bool d_lse = false;   // True if the gradient of the LSE is another input.
  bool d_bias = false;  // True if the gradient of the bias is another output.
  // Element type of d_out: dtype, or fp32 if the output is fp32. Unspecified means dtype.
  DataType d_out_dtype = DataType::kUnspecified;
  std::string state;  // The forward job whose kept state lends the other inputs; empty: none.
  bool release_state = false;  // True if the state is released after this job.
};

// One range of a range list: query rows [q_begin, q_end) × key rows [k_begin, k_end), both rows of
// a sequence. docs/reference/numerics.md, "Masks" defines the kinds.
struct MaskRange {
  enum class Kind : uint8_t { kFull = 0, kCausal = 1, kInverseCausal = 2, kBiCausal = 3 };
  int64_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  Kind kind = Kind::kFull;
};
// All fields of a range. A field that is added to MaskRange and not here does not compile.
inline auto FieldsOf(const MaskRange& range) {
  const auto& [q_begin, q_end, k_begin, k_end, kind] = range;
  return std::tie(q_begin, q_end, k_begin, k_end, kind);
}
inline bool operator==(const MaskRange& a, const MaskRange& b) {
  return FieldsOf(a) == FieldsOf(b);
}
inline bool operator<(const MaskRange& a, const MaskRange& b) { return FieldsOf(a) < FieldsOf(b); }

// The keys that a query sees. Fields combine (docs/reference/numerics.md, "Masks"). An absent field
// is off.
struct Mask {
  enum class Alignment : uint8_t { kBottomRight = 0, kTopLeft = 1 };
  bool causal = false;
  Alignment alignment = Alignment::kBottomRight;
  std::optional<int64_t> window_left, window_right, chunk, prefix, always_visible;
  std::vector<MaskRange> ranges;
  bool bit_mask = false;  // True if the input TensorId::kBitMask hides further pairs.
  // Query heads that follow the mask. Empty: the heads that no other mask of the group names.
  std::vector<int32_t> query_heads;
};

// The fields that decide which pairs a mask hides: all but query_heads. The tuple refers to `mask`.
// A field that is added to Mask and not here does not compile. Code that lists the fields of Mask
// by hand asserts kMaskFields beside its list.
inline constexpr int kMaskFields = 10;
inline auto RuleOf(const Mask& mask) {
  const auto& [causal, alignment, window_left, window_right, chunk, prefix, always_visible, ranges,
               bit_mask, query_heads] = mask;
  static_cast<void>(query_heads);
  const auto rule = std::tie(causal, alignment, window_left, window_right, chunk, prefix,
                             always_visible, ranges, bit_mask);
  static_assert(std::tuple_size_v<decltype(rule)> + 1 == kMaskFields);
  return rule;
}

// One sequence of a job. In every packed tensor its rows follow those of the sequence before.
struct Sequence {
  int64_t q_len = 0, kv_len = 0;
  std::string session;  // The session whose keys come first; empty: none.
  int32_t layer = 0;
  // Index into AttentionSpec::masks of the first mask of a group (attention/mask/mask_groups.h).
  int32_t mask = 0;
};

// A tensor added to scores: the input TensorId::kBias.
struct Bias {
  DataType dtype = DataType::kUnspecified;  // Unspecified: that of q.
  int32_t heads = 1;                        // q_heads, or 1 if all query heads share the bias.
};

// docs/reference/numerics.md, "Score modifiers" gives the formulas and their order.
struct ScoreModifiers {
  std::optional<double> soft_cap;
  std::vector<float> alibi_slopes, sinks;  // One value per query head, or empty.
  std::optional<Bias> bias;
  bool lse_offset = false;  // True if the job has the input TensorId::kLseOffset.
};
enum class LseBase : uint8_t { kE = 0, k2 = 1 };
struct Outputs {
  LseBase lse_base = LseBase::kE;
  bool max_logit = false;
  // True if the part of the LSE that rounding to fp32 removes is an output of a forward job, or an
  // input of gradients.
  bool lse_rest = false;
};
// Drops weights with probability `rate`, in [0, 1) (attention/numerics/dropout.h).
struct Dropout {
  double rate = 0;
  uint64_t seed = 0;
};

// The problem that a job solves. Packed tensors hold the rows of all sequences, one sequence after
// another.
struct AttentionSpec {
  DataType dtype = DataType::kUnspecified;  // The dtype of q, k and v.
  int32_t q_heads = 0, kv_heads = 0;
  // Elements per head of q and k, and of v and the output; head_dim_v 0 means head_dim.
  int32_t head_dim = 0, head_dim_v = 0;
  std::vector<Sequence> sequences;
  std::optional<double> scale;  // Absent: 1/sqrt(head_dim). Zero and negative values count.
  std::vector<Mask> masks;     // Empty: every key is visible. Groups: attention/mask/mask_groups.h.
  int32_t bit_mask_heads = 1;  // q_heads, or 1 if all query heads share the bit mask.
  Operation operation = Operation::kForward;
  ForwardOptions forward;
  GradientOptions gradients;
  ScoreModifiers modifiers;
  Outputs outputs;
  bool deterministic = false;
  DataType out_dtype = DataType::kUnspecified;  // The dtype of the output; unspecified: dtype.
  std::optional<Dropout> dropout;
  Arithmetic arithmetic = Arithmetic::kOfType;

  bool keeps_state() const;  // True if the workers keep this job's state.
  bool uses_state() const;   // True if the job uses another job's state.
  // Rows of the packed tensors. Requires a validated spec: the sums are not checked for overflow.
  int64_t q_rows() const;
  int64_t kv_rows() const;
  int32_t value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  DataType output_dtype() const { return out_dtype == DataType::kUnspecified ? dtype : out_dtype; }
  double scale_or_default() const;
  // Element type of the input d_out of a gradients job.
  DataType d_out_dtype() const {
    return gradients.d_out_dtype == DataType::kUnspecified ? dtype : gradients.d_out_dtype;
  }
  // True if the job has TensorId::kLseRest: on request, and always if a state is kept or used.
  bool has_lse_rest() const { return outputs.lse_rest || keeps_state() || uses_state(); }
  // Requires: modifiers.bias is set.
  DataType bias_dtype() const {
    return modifiers.bias->dtype == DataType::kUnspecified ? dtype : modifiers.bias->dtype;
  }
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_SPEC_H_
