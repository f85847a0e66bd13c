#include "tests/reference/gradient_budget.h"

#include "attention/error_budget.h"

namespace annulus::reference {
namespace {

template <Precision precision>
double Ulp(double magnitude) {
  return UlpOf(precision, magnitude);
}

double (*UlpsOf(Precision precision))(double) {
  if (precision == Precision::kFp16) return Ulp<Precision::kFp16>;
  return precision == Precision::kBf16 ? Ulp<Precision::kBf16> : Ulp<Precision::kFp32>;
}

// One gradient: [rows, heads, dim].
struct Tensor {
  const char* name;
  const std::vector<double>&exact, &naive;
  const std::vector<float>& answer;
  int32_t heads, dim;
};

testing::AssertionResult Judge(const Tensor& tensor, double (*ulp)(double)) {
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
    heads[head].AddOutput(tensor.exact[i], tensor.naive[i], tensor.answer[i]);
    if (heads[head].answer() > before) worst[head] = i / width;
  }
  const auto numbers = static_cast<int64_t>(tensor.exact.size()) / tensor.heads;
  const std::vector<double> budgets = OutputBudgets(heads, numbers, ulp);
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
  const Gradients exact = ExactGradients(input, upstream);
  const Gradients naive = NaiveGradients(input, upstream, answer.inputs);
  const Tensor tensors[] = {{"dq", exact.dq, naive.dq, answer.dq, input.q_heads, input.head_dim},
                            {"dk", exact.dk, naive.dk, answer.dk, input.kv_heads, input.head_dim},
                            {"dv", exact.dv, naive.dv, answer.dv, input.kv_heads, input.value_dim}};
  for (const Tensor& tensor : tensors) {
    const testing::AssertionResult result = Judge(tensor, UlpsOf(answer.inputs));
    if (!result) return result;
  }
  return testing::AssertionSuccess();
}

}  // namespace annulus::reference
