#ifndef ANNULUS_TESTS_REFERENCE_GRADIENT_BUDGET_H_
#define ANNULUS_TESTS_REFERENCE_GRADIENT_BUDGET_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attention/numerics/error_budget.h"
#include "tests/reference/budget.h"
#include "tests/reference/reference_gradients.h"

namespace annulus::reference {

// The answer of an implementation, in packed rows.
struct GradientAnswer {
  Precision inputs = Precision::kFp32;  // Type of q, k, v, d_out and the gradients.
  std::vector<float> dq, dk, dv;        // Shapes of q, k and v.
  std::vector<float> d_sink;            // [query rows, q_heads], if there are sinks.
  std::vector<float> d_bias;  // Bias gradient with `bias_heads` heads, if it was requested.
  int32_t bias_heads = 0;
};

// Checks the error budget (docs/reference/numerics.md) of gradients, by tensor and head:
//   max |answer − exact| <= 2 · max |naive − exact| + ½ ulp(max |exact|)
// with a naive implementation for gradients. With fewer than 4,096 rows, the naive error is the
// largest of all heads and of up to 8 orders of the sums, because that of a few weights depends on
// chance; and the tolerance of attention/numerics/pair_error.h is added. The failure message has
// the worst tensor, head, row and both errors. Takes pairs × dims × heads up to a hundred times in
// scalar code.
testing::AssertionResult CheckGradients(const Input& input, const Upstream& upstream,
                                        const GradientAnswer& answer);

// Like ForwardErrors (budget.h), for gradients.
class GradientErrors {
 public:
  testing::AssertionResult Add(const Input& input, const Upstream& upstream,
                               const GradientAnswer& answer);
  testing::AssertionResult Judge(const Slack& slack = {}) const;

 private:
  // One gradient: [rows, heads, dim].
  struct Tensor {
    std::string name;
    int64_t rows = 0;
    double (*ulp)(double) = nullptr;
    std::vector<HeadErrors> heads;
    std::vector<size_t> worst;  // For each head, the row of its largest error.
  };
  struct Numbers;

  testing::AssertionResult AddTensor(const Numbers& numbers, const std::vector<Gradients>& naive);

  std::vector<Tensor> tensors_;
};

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_GRADIENT_BUDGET_H_
