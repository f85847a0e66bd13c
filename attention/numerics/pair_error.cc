#include "attention/numerics/pair_error.h"

#include <algorithm>

namespace annulus {
namespace {

constexpr double kHalfUlp = 0x1p-24;  // Half an ulp of fp32, relative.

// The largest relative change of a weight by adding numbers to its score. Beyond it the error is
// not of first order. A bias of −1e9, for example, is rounded alike by every implementation, so the
// naive computation shows the loss.
constexpr double kMostOfAddends = 0.125;

// The relative error of a dot product of n numbers, as a part of Σ|a · b|. It is the worst case for
// n up to 2, and more than four times the root mean square for large n.
double OfProduct(int64_t n) { return kHalfUlp * std::sqrt(2.0 * static_cast<double>(n)); }

}  // namespace

double ErrorOfLogit(int64_t head_dim, double product) {
  return (OfProduct(head_dim) + kHalfUlp) * product;
}

PairError ErrorOfPair(const PairSizes& sizes) {
  const double exponent = sizes.slope * ErrorOfLogit(sizes.head_dim, sizes.product) +
                          std::min(kHalfUlp * (sizes.addends + 3), kMostOfAddends);
  const double product = OfProduct(sizes.value_dim) * sizes.value_product;
  const double delta = OfProduct(sizes.value_dim) * sizes.delta;
  // The error of 1 − t², however small it is.
  const double of_slope = sizes.capped ? 6 * kHalfUlp : 0;
  PairError error;
  error.weight = sizes.kept * sizes.weight * exponent;
  error.d_bias = sizes.weight * (product + delta + sizes.difference * exponent);
  error.d_score = sizes.weight * (sizes.slope * (product + sizes.difference * exponent) +
                                  sizes.difference * of_slope);
  error.delta = sizes.weight * sizes.slope * delta;
  return error;
}

}  // namespace annulus
