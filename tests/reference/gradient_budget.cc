#include "tests/reference/gradient_budget.h"

#include <algorithm>

#include "attention/error_budget.h"

namespace annulus::reference {
namespace {

// The error of one weight shows in all dimensions of its rows: what counts is how many rows there
// are, and the naive error of a few is luck.
int32_t OrdersFor(const Input& input) {
  constexpr int64_t kSteadyRows = 4096, kMaxOrders = 8, kMaxWork = 10000000;
  const int64_t rows = std::max<int64_t>(1, std::min(input.q_rows(), input.kv_rows()));
  int64_t pairs = 1;
  for (const Document& document : input.documents) pairs += document.q_len * document.kv_len;
  const int64_t work = pairs * input.q_heads * (input.head_dim + input.value_dim);
  const int64_t affordable = std::clamp<int64_t>(kMaxWork / work, 2, kMaxOrders);
  return static_cast<int32_t>(std::clamp<int64_t>(kSteadyRows / rows, 1, affordable));
}

// One gradient: [rows, heads, dim].
struct Tensor {
  const char* name;
  const std::vector<double>& exact;
  std::vector<double> Gradients::*in_naive;
  const std::vector<float>& answer;
  int32_t heads, dim;
};

testing::AssertionResult Judge(const Tensor& tensor, const std::vector<Gradients>& naive,
                               double (*ulp)(double)) {
  if (tensor.answer.size() != tensor.exact.size()) {
    return testing::AssertionFailure() << tensor.name << " has " << tensor.answer.size()
                                       << " numbers, not " << tensor.exact.size();
  }
  const size_t width = static_cast<size_t>(tensor.heads) * tensor.dim;
  std::vector<HeadErrors> heads(tensor.heads);
  std::vector<size_t> worst(tensor.heads, 0);
  for (size_t i = 0; i < tensor.exact.size(); ++i) {
    const size_t head = i % width / tensor.dim;
    const double before = heads[head].answer();
    for (const Gradients& one : naive) {
      heads[head].AddOutput(tensor.exact[i], (one.*tensor.in_naive)[i], tensor.answer[i]);
    }
    if (heads[head].answer() > before) worst[head] = i / width;
  }
  const auto rows = static_cast<int64_t>(tensor.exact.size() / width);
  const std::vector<double> budgets = OutputBudgets(heads, rows, ulp);
  for (int32_t head = 0; head < tensor.heads; ++head) {
    if (heads[head].answer() <= budgets[head]) continue;
    return testing::AssertionFailure()
           << tensor.name << " head " << head << " row " << worst[head] << ": error "
           << heads[head].answer() << " above its budget " << budgets[head] << " (naive error "
           << heads[head].naive() << ")";
  }
  return testing::AssertionSuccess();
}

}  // namespace

testing::AssertionResult CheckGradients(const Input& input, const Upstream& upstream,
                                        const GradientAnswer& answer) {
  const Gradients exact = ExactGradients(input, upstream, answer.bias_heads);
  const int32_t orders = OrdersFor(input);
  std::vector<Gradients> naive;
  for (int32_t order = 0; order < orders; ++order) {
    naive.push_back(
        NaiveGradients(input, upstream, answer.inputs, {order, orders}, answer.bias_heads));
  }
  const Tensor tensors[] = {
      {"dq", exact.dq, &Gradients::dq, answer.dq, input.q_heads, input.head_dim},
      {"dk", exact.dk, &Gradients::dk, answer.dk, input.kv_heads, input.head_dim},
      {"dv", exact.dv, &Gradients::dv, answer.dv, input.kv_heads, input.value_dim}};
  for (const Tensor& tensor : tensors) {
    const testing::AssertionResult result = Judge(tensor, naive, UlpsOf(answer.inputs));
    if (!result) return result;
  }
  if (answer.bias_heads > 0) {
    const auto columns = static_cast<int32_t>(exact.d_bias.size() / answer.bias_heads /
                                              std::max<int64_t>(1, input.q_rows()));
    const testing::AssertionResult result =
        Judge({"d_bias", exact.d_bias, &Gradients::d_bias, answer.d_bias, answer.bias_heads,
               std::max(1, columns)},
              naive, UlpsOf(Precision::kFp32));
    if (!result) return result;
  }
  return Judge({"d_sink", exact.d_sink, &Gradients::d_sink, answer.d_sink, input.q_heads, 1}, naive,
               UlpsOf(Precision::kFp32));
}

}  // namespace annulus::reference
