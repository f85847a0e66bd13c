#ifndef ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "attention/numerics/error_budget.h"
#include "attention/numerics/pair_error.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/order.h"
#include "client/cli/verify/row_norms.h"

namespace annulus {

// The verifier of gradients jobs. Start at VerifyGradients; the rest are its parts.

// The origin of the LSE that a gradients job is given.
enum class GivenLse {
  kJudged,  // From a forward job: weights are computed from the scores.
  kTaken,   // Synthetic: it defines the weights, and every LSE is used as it is.
};

struct GradientReport {
  int64_t q_rows = 0, k_rows = 0;  // The number of recomputed rows.
  // The tensor and head with the largest ratio of error and budget.
  TensorId worst_tensor = TensorId::kDq;
  int32_t worst_head = 0;
  double error = 0;   // Its largest difference from fp64.
  double budget = 0;  // Its budget by docs/reference/numerics.md.
  bool within() const { return error <= budget; }
};

// VerifyRows() (client/cli/verify/verify.h) for a finished gradients job. Recomputes in fp64, for
// every head and on all threads:
// - for `count` query rows: dq, and d_sink and d_bias if the job has them
// - for `count` key rows: dk and dv
//
// The inputs are used as given, except the LSE: the weights are normalised from the scores
// (GradientNorms). `tensors`: all of TensorTable(spec), packed.
GradientReport VerifyGradients(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, GivenLse lse = GivenLse::kJudged);

// The norms of the weights, for the query heads of one key/value head: [head of the group][packed
// query row]. Set only for the query rows `q_rows` and for those that see a key row of `k_rows`.
// Both lists are packed rows in increasing order.
//
// The norms are computed from the scores, not from the given LSE: beside a score of −1e9, fp32 has
// no room for the LSE. The given LSE is used as it is if:
// - `lse` is kTaken
// - it is not finite: a row of −∞ adds nothing, and a NaN must show
// - the scores of the whole job would take more than 2^35 multiplications, the row was not picked,
//   and |LSE| <= 64, so that its rounding does not matter
std::vector<std::vector<RowNorm>> GradientNorms(const JobRows& job, int32_t kv_head,
                                                const std::vector<int64_t>& q_rows,
                                                const std::vector<int64_t>& k_rows, GivenLse lse);

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

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_
