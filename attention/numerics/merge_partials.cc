#include "attention/numerics/merge_partials.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/numerics/wide_lse.h"
#include "attention/spec/limits.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr WideLse kNothing = {-std::numeric_limits<double>::infinity(), 0};

bool IsNothing(const WideLse& lse) { return lse.high == kNothing.high; }

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::vector<int64_t> LseShape(const std::vector<int64_t>& out_shape, LseLayout layout) {
  if (layout == LseLayout::kRowsHeads) return {out_shape[0], out_shape[1]};
  return {out_shape[1], out_shape[0]};
}

// Checks the number of values against the shape. Limits each extent before the product can
// overflow.
absl::Status CheckNumbers(const std::string& path, const std::vector<int64_t>& shape,
                          size_t numbers) {
  int64_t promised = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return InvalidField("DIM_OVERFLOW", path + ".shape", absl::StrCat(extent, " is negative"));
    }
    if (extent > 0) {
      RETURN_IF_ERROR(CheckLimit(path + ".shape", extent, kMaxMergeNumbers / promised));
      promised *= extent;
    }
  }
  if (std::count(shape.begin(), shape.end(), 0) > 0) promised = 0;
  if (static_cast<size_t>(promised) == numbers) return absl::OkStatus();
  return InvalidField("TENSOR_BYTES_MISMATCH", path + ".values",
                      absl::StrCat(numbers, " values where the shape says ", promised));
}

absl::Status CheckShape(const std::string& path, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& wanted) {
  if (shape == wanted) return absl::OkStatus();
  return InvalidField("SHAPE_MISMATCH", path + ".shape",
                      absl::StrCat(ShapeText(shape), " where ", ShapeText(wanted), " is needed"));
}

absl::Status CheckShapes(const FinishedPartial& partial, const std::string& path,
                         const std::vector<int64_t>& out_shape) {
  RETURN_IF_ERROR(CheckShape(path + ".out", partial.out_shape, out_shape));
  RETURN_IF_ERROR(CheckNumbers(path + ".out", partial.out_shape, partial.out.size()));
  const std::vector<int64_t> lse_shape = LseShape(out_shape, partial.layout);
  RETURN_IF_ERROR(CheckShape(path + ".lse", partial.lse_shape, lse_shape));
  RETURN_IF_ERROR(CheckNumbers(path + ".lse", partial.lse_shape, partial.lse.size()));
  if (partial.rest.empty() && partial.rest_shape.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckShape(path + ".lse_rest", partial.rest_shape, lse_shape));
  return CheckNumbers(path + ".lse_rest", partial.rest_shape, partial.rest.size());
}

absl::Status CheckValues(const FinishedPartial& partial, const std::string& path) {
  const auto corrupt = [&](absl::string_view field, size_t i, absl::string_view why) {
    return InvalidField("CORRUPT_PARTIAL", absl::StrCat(path, ".", field, ".values[", i, "]"), why);
  };
  for (size_t i = 0; i < partial.lse.size() && !partial.nonfinite_is_empty; ++i) {
    const float lse = partial.lse[i];
    if (std::isnan(lse)) return corrupt("lse", i, "is NaN");
    if (lse == std::numeric_limits<float>::infinity()) return corrupt("lse", i, "is +infinity");
  }
  for (size_t i = 0; i < partial.rest.size(); ++i) {
    if (!std::isfinite(partial.rest[i])) return corrupt("lse_rest", i, "is not finite");
  }
  return absl::OkStatus();
}

// The natural LSE; −inf if the partial has seen no key.
WideLse LseOf(const FinishedPartial& partial, int64_t index) {
  const float lse = partial.lse[index];
  if (!std::isfinite(lse)) return kNothing;
  return NaturalLse({lse, partial.rest.empty() ? 0 : partial.rest[index]}, partial.base);
}

int64_t LseIndex(const FinishedPartial& partial, int64_t row, int64_t head) {
  const bool by_row = partial.layout == LseLayout::kRowsHeads;
  return by_row ? row * partial.out_shape[1] + head : head * partial.out_shape[0] + row;
}

// True if the row's result depends on digits that a coarse LSE has lost. Then at least two partials
// have weight in the row, and one of them has no rest. `first` is the first such partial.
bool LacksDigits(absl::Span<const FinishedPartial> partials, int64_t row, int64_t head,
                 size_t* first) {
  constexpr float kNoWeight = 104;  // exp(-104) is 0 in fp32.
  float top = -std::numeric_limits<float>::infinity();
  const auto lse_of = [&](const FinishedPartial& p) { return p.lse[LseIndex(p, row, head)]; };
  for (const FinishedPartial& p : partials) {
    if (std::isfinite(lse_of(p))) top = std::max(top, lse_of(p));
  }
  if (!IsCoarse(top)) return false;
  const float near = kNoWeight + std::fabs(top) * 0x1p-22f;
  int sharers = 0;
  bool lacks = false;
  for (size_t k = 0; k < partials.size(); ++k) {
    const float lse = lse_of(partials[k]);
    if (!std::isfinite(lse) || !(top - lse < near)) continue;
    ++sharers;
    if (!partials[k].rest.empty() || lacks) continue;
    lacks = true;
    *first = k;
  }
  return lacks && sharers > 1;
}

absl::Status CheckDigits(absl::Span<const FinishedPartial> partials) {
  const int64_t rows = partials[0].out_shape[0], heads = partials[0].out_shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      size_t k = 0;
      if (!LacksDigits(partials, row, head, &k)) continue;
      const int64_t index = LseIndex(partials[k], row, head);
      return InvalidField(
          "LSE_TOO_COARSE", absl::StrCat("partials[", k, "].lse.values[", index, "]"),
          absl::StrCat(partials[k].lse[index],
                       " has no digits left for the weight of this partial beside others. Send "
                       "lse_rest, which a forward job returns with spec.outputs.lse_rest"));
    }
  }
  return absl::OkStatus();
}

// Merges one row of one head.
class RowMerge {
 public:
  explicit RowMerge(absl::Span<const FinishedPartial> partials)
      : partials_(partials), lse_(partials.size()), sum_(partials[0].out_shape[2]) {}

  // Leaves the output in sum() and returns the natural LSE.
  WideLse Merge(int64_t row, int64_t head) {
    const int64_t heads = partials_[0].out_shape[1];
    const int64_t dim = static_cast<int64_t>(sum_.size());
    WideLse top = kNothing;
    for (size_t k = 0; k < lse_.size(); ++k) {
      lse_[k] = LseOf(partials_[k], LseIndex(partials_[k], row, head));
      if (IsNothing(lse_[k])) continue;
      if (IsNothing(top) || Difference(lse_[k], top) > 0) top = lse_[k];
    }
    std::fill(sum_.begin(), sum_.end(), 0.0);
    if (IsNothing(top)) return kNothing;
    double weights = 0;
    for (size_t k = 0; k < lse_.size(); ++k) {
      if (IsNothing(lse_[k])) continue;  // Skip the output: 0 · NaN is NaN.
      const double weight = std::exp(Difference(lse_[k], top));
      weights += weight;
      const float* out = partials_[k].out.data() + (row * heads + head) * dim;
      for (int64_t d = 0; d < dim; ++d) sum_[d] += weight * out[d];
    }
    for (double& number : sum_) number = number / weights + 0.0;
    return {top.high, top.low + std::log(weights)};
  }
  absl::Span<const double> sum() const { return sum_; }

 private:
  const absl::Span<const FinishedPartial> partials_;
  std::vector<WideLse> lse_;
  std::vector<double> sum_;
};

}  // namespace

absl::Status CheckPartialCount(int64_t count) {
  if (count == 0) return InvalidField("MISSING_TENSOR", "partials", "there is none");
  return CheckLimit("partials", count, kMaxMergePartials);
}

absl::Status CheckPartials(absl::Span<const FinishedPartial> partials) {
  RETURN_IF_ERROR(CheckPartialCount(static_cast<int64_t>(partials.size())));
  const std::vector<int64_t>& shape = partials[0].out_shape;
  if (shape.size() != 3 || shape[1] == 0 || shape[2] == 0) {
    return InvalidField("SHAPE_MISMATCH", "partials[0].out.shape",
                        absl::StrCat(ShapeText(shape), " is not [rows, heads, dim]"));
  }
  int64_t numbers = 0;
  for (size_t i = 0; i < partials.size(); ++i) {
    const std::string path = absl::StrCat("partials[", i, "]");
    RETURN_IF_ERROR(CheckShapes(partials[i], path, shape));
    numbers += static_cast<int64_t>(partials[i].out.size() + 2 * partials[i].lse.size());
    RETURN_IF_ERROR(CheckLimit("partials", numbers, kMaxMergeNumbers));
  }
  for (size_t i = 0; i < partials.size(); ++i) {
    RETURN_IF_ERROR(CheckValues(partials[i], absl::StrCat("partials[", i, "]")));
  }
  return CheckDigits(partials);
}

MergedPartial MergePartials(absl::Span<const FinishedPartial> partials, LseBase base,
                            LseLayout layout) {
  MergedPartial merged;
  merged.out_shape = partials[0].out_shape;
  merged.lse_shape = LseShape(merged.out_shape, layout);
  const int64_t rows = merged.out_shape[0], heads = merged.out_shape[1];
  merged.out.resize(partials[0].out.size());
  merged.lse.resize(rows * heads);
  merged.rest.resize(rows * heads);
  RowMerge row_merge(partials);
  auto to = merged.out.begin();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const WideLse lse = row_merge.Merge(row, head);
      const absl::Span<const double> sum = row_merge.sum();
      to = std::transform(sum.begin(), sum.end(), to,
                          [](double number) { return static_cast<float>(number); });
      const int64_t index =
          layout == LseLayout::kRowsHeads ? row * heads + head : head * rows + row;
      const RoundedLse rounded =
          IsNothing(lse) ? RoundedLse{static_cast<float>(lse.high), 0} : Round(lse, base);
      merged.lse[index] = rounded.lse;
      merged.rest[index] = rounded.rest;
    }
  }
  return merged;
}

}  // namespace annulus
