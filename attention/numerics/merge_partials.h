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

// Finished partials of the same query rows over disjoint keys, (output, LSE), joined into one
// (docs/reference/numerics.md, "Merging finished partials"). Pure; what is small enough for one
// call.

inline constexpr int64_t kMaxMergePartials = 256;
// Numbers of all partials of a call together, each LSE counted with a rest: 3 MiB, below what a
// message may hold, the answer's too.
inline constexpr int64_t kMaxMergeNumbers = int64_t{3} << 18;

enum class LseLayout : uint8_t { kRowsHeads = 0, kHeadsRows = 1 };

// One partial, in the caller's memory.
struct FinishedPartial {
  std::vector<int64_t> out_shape;  // [rows, heads, dim].
  std::vector<int64_t> lse_shape;  // By `layout`: [rows, heads] or [heads, rows].
  absl::Span<const float> out;
  absl::Span<const float> lse;
  // What rounding the LSE to fp32 has taken from it, to be added; the shape of lse. Empty: nothing.
  std::vector<int64_t> rest_shape;
  absl::Span<const float> rest;
  LseBase base = LseBase::kE;
  LseLayout layout = LseLayout::kRowsHeads;
  // Some libraries say NaN or +inf for a row that has seen nothing. Else such an LSE is refused.
  bool nonfinite_is_empty = false;
};

// An LSE that fp32 does not hold is NaN.
struct MergedPartial {
  std::vector<int64_t> out_shape, lse_shape;
  std::vector<float> out, lse, rest;
};

// INVALID_ARGUMENT with MISSING_TENSOR (none) or LIMIT_EXCEEDED.
absl::Status CheckPartialCount(int64_t count);

// Whether the partials can be joined. INVALID_ARGUMENT with the field below "partials":
// MISSING_TENSOR (none), LIMIT_EXCEEDED, SHAPE_MISMATCH, TENSOR_BYTES_MISMATCH (numbers that the
// shape does not promise), CORRUPT_PARTIAL (an LSE of NaN or +inf, a rest that is not finite),
// LSE_TOO_COARSE (partials share a row whose LSE is too coarse without a rest,
// attention/numerics/wide_lse.h).
absl::Status CheckPartials(absl::Span<const FinishedPartial> partials);

// Joins what CheckPartials has passed, in fp64, one rounding at the end. A partial with LSE −inf
// has seen nothing, its output is not read. `base` and `layout` are those of the answer.
MergedPartial MergePartials(absl::Span<const FinishedPartial> partials, LseBase base,
                            LseLayout layout);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_MERGE_PARTIALS_H_
