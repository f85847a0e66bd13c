#ifndef ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_
#define ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_

#include <cmath>
#include <cstdint>

namespace annulus {

// A part of the error budget (docs/reference/numerics.md, "Gradients"): what the naive
// implementation of gradients may round off in fp32 at worst. Few gradients are judged by it
// besides, since the largest error that is measured of a few is luck, of the naive ones as of ours.

// What one visible pair, or a row's sink, makes of its gradients, in exact numbers.
struct PairSizes {
  int64_t head_dim = 1, value_dim = 1;
  double weight = 0;      // P.
  double kept = 1;        // What dropout makes of 1.
  double slope = 1;       // Of a soft cap, which there is where `capped`.
  double difference = 0;  // |kept · dO·v − delta|.
  bool capped = false;
  double product = 0;  // |scale| · Σ|q · k|.
  double addends = 0;  // |LSE| and whatever else is added to the score, and 3 · |capped score|.
  double value_product = 0;  // kept · Σ|dO · v|.
  double delta = 0;          // Σ|dO · O| + |dL|.
};

// What those may be off, to first order.
struct PairError {
  double weight = 0;   // kept · P.
  double d_bias = 0;   // P · (kept · dO·v − delta).
  double d_score = 0;  // That with the slope, but for what is wrong with delta,
  double delta = 0;    // which is the same for all keys of a row: this.
};
PairError ErrorOfPair(const PairSizes& sizes);

// What the product of a score may be off, times the scale: of vectors of `head_dim` numbers whose
// |scale| · Σ|q · k| is `product`.
double ErrorOfLogit(int64_t head_dim, double product);

// Of a sum of shares whose roundings know nothing of each other. Twice the root of the sum of
// squares: no less than twice the error of one share at its worst, and of up to 4 as large ones all
// at their worst at once.
class ErrorOfSum {
 public:
  void Add(double error) { squares_ += error * error; }
  double Allowed() const { return 2 * std::sqrt(squares_); }

 private:
  double squares_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_PAIR_ERROR_H_
