#ifndef ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_
#define ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_

#include <cmath>
#include <cstdint>

namespace annulus {

// The worst-case fp32 rounding error of the naive implementation of gradients. Part of the error
// budget (docs/reference/numerics.md, "Gradients"). If few gradients are judged, the budget
// includes it, because the largest measured error of a few depends on luck.

// Exact magnitudes behind the gradients of one visible pair, or of a row's sink.
struct PairSizes {
  int64_t head_dim = 1, value_dim = 1;
  double weight = 0;      // P.
  double kept = 1;        // The factor of dropout: 0, or 1 / (1 − rate).
  double slope = 1;       // The slope of the soft cap; 1 unless `capped`.
  double difference = 0;  // |kept · dO·v − delta|.
  bool capped = false;
  double product = 0;        // |scale| · Σ|q · k|.
  double addends = 0;        // |LSE| + all terms added to the score + 3 · |capped score|.
  double value_product = 0;  // kept · Σ|dO · v|.
  double delta = 0;          // Σ|dO · O| + |dL|.
};

// First-order error bounds of the same quantities.
struct PairError {
  double weight = 0;  // Error of kept · P.
  double d_bias = 0;  // Error of P · (kept · dO·v − delta).
  // Error of P · slope · (kept · dO·v − delta), without the part from the error of delta.
  double d_score = 0;
  double delta = 0;  // The part from the error of delta, which all keys of a row share.
};
PairError ErrorOfPair(const PairSizes& sizes);

// The error of scale · q·k for vectors of `head_dim` numbers; `product` is |scale| · Σ|q · k|.
double ErrorOfLogit(int64_t head_dim, double product);

// The error of a sum of terms with independent roundings: twice the root of the sum of squares. It
// is at least twice the error of any one term. It also covers up to 4 equal terms that are all at
// their worst at once.
class ErrorOfSum {
 public:
  void Add(double error) { squares_ += error * error; }
  double Allowed() const { return 2 * std::sqrt(squares_); }

 private:
  double squares_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_
