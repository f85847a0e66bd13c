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

// What an implementation answered, in packed rows.
struct GradientAnswer {
  Precision inputs = Precision::kFp32;  // Of q, k, v, d_out and the gradients.
  std::vector<float> dq, dk, dv;        // As q, k and v.
  std::vector<float> d_sink;            // [query rows, q_heads], where there are sinks.
  std::vector<float> d_bias;            // Where it was asked for, of so many heads:
  int32_t bias_heads = 0;
};

// The error budget (docs/reference/numerics.md) for gradients, tensor by tensor and head by head:
//   max |answer − exact| <= 2 · max |naive − exact| + ½ ulp(max |exact|)
// with a naive of their own. For fewer than 4,096 rows the naive error is the largest of all heads
// and of up to 8 orders of the sums: that of a few weights is luck; and what
// attention/numerics/pair_error.h allows is added. The failure names the worst tensor, head, row
// and both errors. Costs pairs × dims × heads up to a hundred times in scalar code.
testing::AssertionResult CheckGradients(const Input& input, const Upstream& upstream,
                                        const GradientAnswer& answer);

// As ForwardErrors (budget.h), of gradients.
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
    std::vector<size_t> worst;  // The row of each head where its error was largest.
  };
  struct Numbers;

  testing::AssertionResult AddTensor(const Numbers& numbers, const std::vector<Gradients>& naive);

  std::vector<Tensor> tensors_;
};

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_GRADIENT_BUDGET_H_
