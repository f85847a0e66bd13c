#include "tests/reference/gradient_budget.h"

#include <algorithm>
#include <cmath>

namespace annulus::reference {
namespace {

// The error of one weight affects all dimensions of its rows. So only the number of rows counts,
// and the naive error of few rows depends on chance.
int32_t OrdersFor(const Input& input) {
  constexpr int64_t kSteadyRows = 4096, kMaxOrders = 8, kMaxWork = 10000000;
  const int64_t rows = std::max<int64_t>(1, std::min(input.q_rows(), input.kv_rows()));
  int64_t pairs = 1;
  for (const Document& document : input.documents) pairs += document.q_len * document.kv_len;
  const int64_t work = pairs * input.q_heads * (input.head_dim + input.value_dim);
  const int64_t affordable = std::clamp<int64_t>(kMaxWork / work, 2, kMaxOrders);
  return static_cast<int32_t>(std::clamp<int64_t>(kSteadyRows / rows, 1, affordable));
}

}  // namespace

struct GradientErrors::Numbers {
  const char* name;
  const std::vector<double>& exact;
  std::vector<double> Gradients::*in_naive;
  const std::vector<float>& answer;
  int32_t heads, dim;
  double (*ulp)(double);
  const std::vector<double>& allowed;  // Tolerance for few rows, by head.
};

testing::AssertionResult GradientErrors::AddTensor(const Numbers& numbers,
                                                   const std::vector<Gradients>& naive) {
  if (numbers.answer.size() != numbers.exact.size()) {
    return testing::AssertionFailure() << numbers.name << " has " << numbers.answer.size()
                                       << " numbers, not " << numbers.exact.size();
  }
  auto tensor = std::find_if(tensors_.begin(), tensors_.end(),
                             [&](const Tensor& each) { return each.name == numbers.name; });
  if (tensor == tensors_.end()) {
    tensors_.push_back({numbers.name, 0, numbers.ulp, {}, {}});
    tensor = tensors_.end() - 1;
    tensor->heads.resize(numbers.heads);
    tensor->worst.resize(numbers.heads);
  }
  const size_t width = static_cast<size_t>(numbers.heads) * numbers.dim;
  tensor->rows = static_cast<int64_t>(numbers.exact.size() / width);
  for (size_t head = 0; head < numbers.allowed.size(); ++head) {
    tensor->heads[head].AllowOfFew(numbers.allowed[head]);
  }
  for (size_t i = 0; i < numbers.exact.size(); ++i) {
    const size_t head = i % width / numbers.dim;
    HeadErrors& errors = tensor->heads[head];
    const double before = errors.answer();
    for (const Gradients& one : naive) {
      errors.AddOutput(numbers.exact[i], (one.*numbers.in_naive)[i], numbers.answer[i]);
    }
    if (errors.answer() > before) tensor->worst[head] = i / width;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult GradientErrors::Add(const Input& input, const Upstream& upstream,
                                             const GradientAnswer& answer) {
  const Gradients exact = ExactGradients(input, upstream, answer.bias_heads);
  const int32_t orders = OrdersFor(input);
  std::vector<Gradients> naive;
  for (int32_t order = 0; order < orders; ++order) {
    naive.push_back(
        NaiveGradients(input, upstream, answer.inputs, {order, orders}, answer.bias_heads));
  }
  double (*const ulp)(double) = UlpsOf(answer.inputs);
  double (*const single)(double) = UlpsOf(Precision::kFp32);
  std::vector<Numbers> all = {{"dq", exact.dq, &Gradients::dq, answer.dq, input.q_heads,
                               input.head_dim, ulp, exact.dq_allowed},
                              {"dk", exact.dk, &Gradients::dk, answer.dk, input.kv_heads,
                               input.head_dim, ulp, exact.dk_allowed},
                              {"dv", exact.dv, &Gradients::dv, answer.dv, input.kv_heads,
                               input.value_dim, ulp, exact.dv_allowed},
                              {"d_sink", exact.d_sink, &Gradients::d_sink, answer.d_sink,
                               input.q_heads, 1, single, exact.d_sink_allowed}};
  if (answer.bias_heads > 0) {
    const auto columns = static_cast<int32_t>(exact.d_bias.size() / answer.bias_heads /
                                              std::max<int64_t>(1, input.q_rows()));
    all.push_back({"d_bias", exact.d_bias, &Gradients::d_bias, answer.d_bias, answer.bias_heads,
                   std::max(1, columns), single, exact.d_bias_allowed});
  }
  for (const Numbers& numbers : all) {
    const testing::AssertionResult added = AddTensor(numbers, naive);
    if (!added) return added;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult GradientErrors::Judge(const Slack& slack) const {
  for (const Tensor& tensor : tensors_) {
    const std::vector<double> budgets = OutputBudgets(tensor.heads, tensor.rows, tensor.ulp);
    for (size_t head = 0; head < tensor.heads.size(); ++head) {
      const HeadErrors& found = tensor.heads[head];
      const double budget = slack.times * budgets[head] + slack.relative * found.largest();
      if (std::isfinite(found.answer()) && (slack.any_number || found.answer() <= budget)) continue;
      return testing::AssertionFailure()
             << tensor.name << " head " << head << " row " << tensor.worst[head] << ": error "
             << found.answer() << " above its budget " << budget << " (naive error "
             << found.naive() << ")";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult CheckGradients(const Input& input, const Upstream& upstream,
                                        const GradientAnswer& answer) {
  GradientErrors errors;
  const testing::AssertionResult added = errors.Add(input, upstream, answer);
  return added ? errors.Judge() : added;
}

}  // namespace annulus::reference
