#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_NUMBERS_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_NUMBERS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// The number of sections of a block's row.
inline int SectionsOf(BlockKind kind) {
  switch (kind) {
    case BlockKind::kQ:
    case BlockKind::kDq:
    case BlockKind::kDqOut:
    case BlockKind::kDSinkOut:
      return 1;
    case BlockKind::kPairs:  // Content is not used.
    case BlockKind::kDBias:  // Has columns instead of sections.
      return 0;
    case BlockKind::kPartial:
    case BlockKind::kBf16Partial:  // Not rounded here.
      return 3;
    case BlockKind::kQGrad:
      return 4;
    default:
      return 2;
  }
}

// Inputs are functions of the packed row and the head, so that confused rows change the result.
inline double QueryAt(int64_t row, int32_t head) { return std::sin(1.3 * row + 0.7 * head); }
inline double KeyAt(int64_t row, int32_t head) { return std::cos(0.9 * row - 0.4 * head); }
inline double ValueAt(int64_t row, int32_t head) { return std::sin(0.37 * row * row + head); }
// For gradients: arbitrary numbers.
inline double OutAt(int64_t row, int32_t head) { return std::cos(0.2 * row + head); }
inline double LseAt(int64_t row, int32_t head) { return 1 + std::sin(0.8 * row - head); }
inline double OutGradientAt(int64_t row, int32_t head) { return std::sin(1.1 * row - 0.3 * head); }
inline double LseGradientAt(int64_t row, int32_t head) { return std::cos(1.7 * row + 0.6 * head); }

// The element of an input block.
inline double InputAt(BlockKind kind, int section, int64_t row, int32_t head) {
  using Number = double (*)(int64_t, int32_t);
  constexpr Number kQueryGradient[] = {QueryAt, OutGradientAt, LseAt, LseGradientAt};
  constexpr Number kOutput[] = {OutAt, LseAt};
  constexpr Number kKeys[] = {KeyAt, ValueAt};
  switch (kind) {
    case BlockKind::kQ:
      return QueryAt(row, head);
    case BlockKind::kQGrad:
      return kQueryGradient[section](row, head);
    case BlockKind::kOut:
      return kOutput[section](row, head);
    default:
      return kKeys[section](row, head);
  }
}

// A partial, and the merge of two.
struct PartialNumbers {
  double sum = 0, max = -std::numeric_limits<double>::infinity(), weight = 0;
};
inline PartialNumbers Merge(const PartialNumbers& a, const PartialNumbers& b) {
  const double max = std::max(a.max, b.max);
  if (max == -std::numeric_limits<double>::infinity())
    return {a.sum + b.sum, max, a.weight + b.weight};
  const double wa = std::exp(a.max - max), wb = std::exp(b.max - max);
  return {wa * a.sum + wb * b.sum, max, wa * a.weight + wb * b.weight};
}

// The contribution of a row to the gradient of its sink.
inline double SinkGradientOf(double sink, double lse, double delta) {
  return -std::exp(sink - lse) * delta;
}

// The contributions of one visible pair.
struct PairGradients {
  double dq = 0, dk = 0, dv = 0, d_bias = 0;
};
inline PairGradients GradientsOfPair(double q, double d_out, double lse, double delta, double k,
                                     double v) {
  const double weight = std::exp(q * k - lse), d_score = weight * (d_out * v - delta);
  return {d_score * k, d_score * q, weight * d_out, d_score};
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_NUMBERS_H_
