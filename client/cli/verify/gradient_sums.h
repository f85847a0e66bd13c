#ifndef ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_SUMS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_SUMS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/numerics/error_budget.h"
#include "attention/numerics/pair_error.h"
#include "client/cli/verify/order.h"

namespace annulus {

// Sums of the gradient verifier, and the numbers that judge them.

// The dot product of a and b, summed in the given order.
template <typename Real>
Real Dot(const float* a, const float* b, int64_t size, const Order& order) {
  Real sum = 0;
  for (int64_t n = 0; n < size; ++n) {
    const int64_t i = order.At(n, size);
    sum += static_cast<Real>(a[i]) * static_cast<Real>(b[i]);
  }
  return sum;
}

// The number of orders of the naive sums. With few rows the naive error of a single order is
// random.
int64_t OrdersOf(int64_t judged);

// Σ |a · b|, the bound on cancellation in a dot product.
double SumOfSizes(const float* a, const float* b, int64_t size);

// max |of|.
template <typename Real>
Real Largest(const Real* of, int64_t size) {
  Real largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(of[i]));
  return largest;
}

// The gradient of a bias in the picked rows: exact, and naive in several orders.
struct BiasSums {
  BiasSums(int32_t heads, int64_t width) : errors(heads), width(width) {}

  void Begin(size_t rows);
  double* Exact(size_t row) { return exact.data() + row * width; }
  ErrorOfSum* Error(size_t row) { return sum_errors.data() + row * width; }
  float* Naive(int64_t order, size_t row) { return naive[order].data() + row * width; }
  void Judge(size_t row, const std::vector<float>& answer, HeadErrors* head);

  std::vector<HeadErrors> errors;  // By head of the bias.
  int64_t width = 0, orders = 1;
  std::vector<double> exact;
  std::vector<ErrorOfSum> sum_errors;  // Indexed like `exact`.
  std::vector<std::vector<float>> naive;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_SUMS_H_
