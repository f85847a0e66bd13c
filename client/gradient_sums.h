#ifndef ANNULUS_CLIENT_GRADIENT_SUMS_H_
#define ANNULUS_CLIENT_GRADIENT_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/error_budget.h"

namespace annulus {

// What the verifier of gradients adds up, and by what it judges that.

// The naive error of a few rows or numbers is luck: over how many orders of the sums it is taken.
int64_t OrdersOf(int64_t judged);

// Σ |a · b|: how far a product of vectors may cancel.
double SumOfSizes(const float* a, const float* b, int64_t size);

// max |of|.
float Largest(const float* of, int64_t size);

// What the error budget allows of few gradients with a term of that size (kUlpsOfTerm).
void AllowOfTerm(double term, HeadErrors* errors);

// The gradient of a bias in the picked rows: exact, and naive in several orders.
struct BiasSums {
  BiasSums(int32_t heads, int64_t width) : errors(heads), width(width) {}

  void Begin(size_t rows);
  double* Exact(size_t row) { return exact.data() + row * width; }
  float* Naive(int64_t order, size_t row) { return naive[order].data() + row * width; }
  void Judge(size_t row, const std::vector<float>& answer, HeadErrors* head);

  std::vector<HeadErrors> errors;  // By head of the bias.
  int64_t width = 0, orders = 1;
  std::vector<double> exact;
  std::vector<std::vector<float>> naive;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_GRADIENT_SUMS_H_
