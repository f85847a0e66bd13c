#ifndef ANNULUS_ATTENTION_SPEC_SPEC_H_
#define ANNULUS_ATTENTION_SPEC_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attention/spec/dtype.h"
#include "attention/spec/execution.h"
#include "attention/spec/operation.h"

namespace annulus {

// The values of one attention request: the mirror of annulus.v1.AttentionSpec, free of protobuf.
// Nothing here is checked; Validate() in attention/validate/validate.h is the only validator.

// One range of a range list: query rows [q_begin, q_end) and key rows [k_begin, k_end) of a
// sequence.
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

// Which keys a query sees. Fields combine (docs/reference/numerics.md, "Masks"); an absent field is
// off.
struct Mask {
  enum class Alignment : uint8_t { kBottomRight = 0, kTopLeft = 1 };
  bool causal = false;
  Alignment alignment = Alignment::kBottomRight;
  std::optional<int64_t> window_left, window_right, chunk, prefix, always_visible;
  std::vector<MaskRange> ranges;
  bool bit_mask = false;             // The input TensorId::kBitMask hides further pairs.
  std::vector<int32_t> query_heads;  // Empty: all heads.
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

// One sequence of a job. Its rows follow those of the sequence before it in every packed tensor.
struct Sequence {
  int64_t q_len = 0, kv_len = 0;
  std::string session;  // Keys of a session come first; empty: none.
  int32_t layer = 0;
  int32_t mask = 0;  // Index into AttentionSpec::masks when there are several.
};

// Added to scores: the input TensorId::kBias.
struct Bias {
  DataType dtype = DataType::kUnspecified;  // Unspecified: that of q.
  int32_t heads = 1;                        // 1, for all query heads, or q_heads.
};

struct ScoreModifiers {
  std::optional<double> soft_cap;
  std::vector<float> alibi_slopes, sinks;  // One for each query head, or empty.
  std::optional<Bias> bias;
  bool lse_offset = false;  // The input TensorId::kLseOffset.
};
enum class LseBase : uint8_t { kE = 0, k2 = 1 };
struct Outputs {
  LseBase lse_base = LseBase::kE;
  bool max_logit = false;
  // What rounding to fp32 takes from the LSE: an output of a forward job, an input of gradients.
  bool lse_rest = false;
};
struct Dropout {
  double rate = 0;
  uint64_t seed = 0;
};

struct AttentionSpec {
  DataType dtype = DataType::kUnspecified;  // Of q, k and v.
  int32_t q_heads = 0, kv_heads = 0;
  int32_t head_dim = 0, head_dim_v = 0;  // Of q and k; of v and the output, 0: head_dim.
  std::vector<Sequence> sequences;
  std::optional<double> scale;  // Absent: 1/sqrt(head_dim). Zero and negative values are honoured.
  std::vector<Mask> masks;      // None: full. One: for all sequences.
  int32_t bit_mask_heads = 1;   // Of the bit mask: 1, for all query heads, or q_heads.
  Operation operation = Operation::kForward;
  ForwardOptions forward;
  GradientOptions gradients;
  ScoreModifiers modifiers;
  Outputs outputs;
  bool deterministic = false;
  DataType out_dtype = DataType::kUnspecified;  // Of the output; unspecified: dtype.
  std::optional<Dropout> dropout;
  Arithmetic arithmetic = Arithmetic::kOfType;

  bool keeps_state() const;  // Its own, on the workers.
  bool uses_state() const;   // That of another job.
  // Rows of the packed tensors. Only for validated specs: the sums are not checked here.
  int64_t q_rows() const;
  int64_t kv_rows() const;
  int32_t value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  DataType output_dtype() const { return out_dtype == DataType::kUnspecified ? dtype : out_dtype; }
  double scale_or_default() const;
  // Element type of the input d_out of a gradients job.
  DataType d_out_dtype() const {
    return gradients.d_out_dtype == DataType::kUnspecified ? dtype : gradients.d_out_dtype;
  }
  // Whether the job has TensorId::kLseRest: on request, and always where a state is kept or used.
  bool has_lse_rest() const { return outputs.lse_rest || keeps_state() || uses_state(); }
  // Where modifiers have a bias.
  DataType bias_dtype() const {
    return modifiers.bias->dtype == DataType::kUnspecified ? dtype : modifiers.bias->dtype;
  }
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_SPEC_H_
