#ifndef ANNULUS_ATTENTION_NUMERICS_MERGE_PARTIALS_H_
#define ANNULUS_ATTENTION_NUMERICS_MERGE_PARTIALS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "attention/spec/spec.h"

namespace annulus {

// Merges finished partials (output, LSE) of the same query rows over disjoint keys into one.
// Formula: docs/reference/numerics.md, "Merging finished partials". Pure functions, for inputs that
// fit into one call.

// The limit of partials of one call.
inline constexpr int64_t kMaxMergePartials = 256;
// The limit of all values of a call together, with each LSE counted as if it had a rest. They take
// 3 MiB, which fits into one message; so does the answer.
inline constexpr int64_t kMaxMergeNumbers = int64_t{3} << 18;

// The shape of an LSE tensor: [rows, heads] or [heads, rows].
enum class LseLayout : uint8_t { kRowsHeads = 0, kHeadsRows = 1 };

// One partial. The spans refer to the caller's memory. All values are row-major.
struct FinishedPartial {
  std::vector<int64_t> out_shape;  // [rows, heads, dim].
  std::vector<int64_t> lse_shape;  // By `layout`: [rows, heads] or [heads, rows].
  absl::Span<const float> out;
  absl::Span<const float> lse;
  // The part of the LSE that rounding to fp32 removed, to be added to `lse`. It has the shape of
  // lse. Empty if there is none.
  std::vector<int64_t> rest_shape;
  absl::Span<const float> rest;
  LseBase base = LseBase::kE;
  LseLayout layout = LseLayout::kRowsHeads;
  // True if an LSE of NaN or +inf means that the row has seen no key, as in some libraries. If
  // false, such an LSE is refused.
  bool nonfinite_is_empty = false;
};

// The merged partial. An LSE that fp32 cannot hold is NaN.
struct MergedPartial {
  std::vector<int64_t> out_shape, lse_shape;
  std::vector<float> out, lse, rest;
};

// INVALID_ARGUMENT with MISSING_TENSOR if count is 0, or LIMIT_EXCEEDED above kMaxMergePartials.
absl::Status CheckPartialCount(int64_t count);

// OK if the partials can be merged. Otherwise INVALID_ARGUMENT with the field below "partials".
// Checks, in this order:
//
// - the count (CheckPartialCount)
// - SHAPE_MISMATCH: partial 0's output is not [rows, heads, dim] with heads and dim above 0
// - for each partial, its output, LSE and rest: SHAPE_MISMATCH, DIM_OVERFLOW (a negative extent),
//   LIMIT_EXCEEDED, TENSOR_BYTES_MISMATCH (the number of values differs from the shape's)
// - CORRUPT_PARTIAL: an LSE of NaN or +inf, or a rest that is not finite
// - LSE_TOO_COARSE: partials share a row, and an LSE is too coarse without a rest
//   (attention/numerics/wide_lse.h)
absl::Status CheckPartials(absl::Span<const FinishedPartial> partials);

// Merges partials that have passed CheckPartials, in fp64 with one rounding at the end. A partial
// with LSE −inf has seen no key, and its output is not read. `base` and `layout` are those of the
// answer.
MergedPartial MergePartials(absl::Span<const FinishedPartial> partials, LseBase base,
                            LseLayout layout);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_MERGE_PARTIALS_H_
