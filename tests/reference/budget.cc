#include "tests/reference/budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace annulus::reference {
namespace {

// Largest errors of one head over the rows.
struct HeadErrors {
  double ours = 0, naive = 0, largest_exact = 0;
  int64_t worst_row = 0;
  double worst_lse = 0;  // Error over what is allowed.
  int64_t worst_lse_row = 0;
};

double Distance(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  return a == b ? 0.0 : std::fabs(a - b);
}

double LseAllowed(Precision inputs, double exact) {
  const double relative = inputs == Precision::kFp32 ? 1e-5 : 1e-3;
  return std::isinf(exact) ? 0.0 : relative * std::max(1.0, std::fabs(exact));
}

void AddRow(const Input& input, const Answer& answer, int32_t head, size_t index,
            HeadErrors* errors) {
  const int64_t q_row = answer.rows[index];
  const Row exact = ExactRow(input, q_row, head);
  const Row naive = NaiveRow(input, q_row, head, answer.inputs, answer.output);
  const size_t cell = index * static_cast<size_t>(input.q_heads) + static_cast<size_t>(head);
  for (size_t d = 0; d < exact.out.size(); ++d) {
    const double ours = Distance(answer.out[cell * exact.out.size() + d], exact.out[d]);
    if (ours > errors->ours) errors->worst_row = q_row;
    errors->ours = std::max(errors->ours, ours);
    errors->naive = std::max(errors->naive, Distance(naive.out[d], exact.out[d]));
    errors->largest_exact = std::max(errors->largest_exact, std::fabs(exact.out[d]));
  }
  const double lse = Distance(answer.lse[cell], exact.lse);
  const double allowed = LseAllowed(answer.inputs, exact.lse);
  const double share = lse == 0 ? 0.0 : lse / allowed;
  if (share > errors->worst_lse) errors->worst_lse_row = q_row;
  errors->worst_lse = std::max(errors->worst_lse, share);
}

// Outputs of a head below which the largest of its errors says little: ours and the naive one are
// independent, and the larger of a few of either is luck.
constexpr int64_t kSmallSample = 4096;

// Small samples borrow from the other heads of their job, and are allowed rounding's own grain.
void Pool(int64_t outputs_per_head, Precision output, std::vector<HeadErrors>* heads) {
  if (outputs_per_head >= kSmallSample) return;
  double naive = 0;
  for (const HeadErrors& head : *heads) {
    naive = std::max(naive, head.naive + 0.75 * UlpOf(output, head.largest_exact));
  }
  for (HeadErrors& head : *heads) head.naive = naive;
}

testing::AssertionResult Judge(const HeadErrors& errors, const Answer& answer, int32_t head) {
  const double budget = 2 * errors.naive + UlpOf(answer.output, errors.largest_exact) / 2;
  if (!(errors.ours <= budget)) {
    return testing::AssertionFailure()
           << "head " << head << " row " << errors.worst_row << ": output error " << errors.ours
           << " above its budget " << budget << " (naive error " << errors.naive << ")";
  }
  if (!(errors.worst_lse <= 1)) {
    return testing::AssertionFailure() << "head " << head << " row " << errors.worst_lse_row
                                       << ": LSE error is " << errors.worst_lse << " x its budget";
  }
  return testing::AssertionSuccess();
}

}  // namespace

testing::AssertionResult CheckWithinBudget(const Input& input, const Answer& given) {
  Answer answer = given;
  if (answer.rows.empty()) {
    answer.rows.resize(static_cast<size_t>(input.q_rows()));
    std::iota(answer.rows.begin(), answer.rows.end(), int64_t{0});
  }
  const size_t cells = answer.rows.size() * static_cast<size_t>(input.q_heads);
  if (answer.lse.size() != cells ||
      answer.out.size() != cells * static_cast<size_t>(input.value_dim)) {
    return testing::AssertionFailure() << "wrong size: " << answer.out.size() << " outputs and "
                                       << answer.lse.size() << " LSE for " << cells << " cells";
  }
  std::vector<HeadErrors> heads(static_cast<size_t>(input.q_heads));
  for (int32_t head = 0; head < input.q_heads; ++head) {
    for (size_t i = 0; i < answer.rows.size(); ++i) AddRow(input, answer, head, i, &heads[head]);
  }
  Pool(static_cast<int64_t>(answer.rows.size()) * input.value_dim, answer.output, &heads);
  for (int32_t head = 0; head < input.q_heads; ++head) {
    const testing::AssertionResult result = Judge(heads[head], answer, head);
    if (!result) return result;
  }
  return testing::AssertionSuccess();
}

std::vector<int64_t> SampleRows(int64_t rows, int64_t count, uint64_t seed) {
  std::set<int64_t> chosen;
  if (rows > 0) chosen = {0, rows - 1};
  std::mt19937_64 random(seed);
  while (static_cast<int64_t>(chosen.size()) < std::min(rows, count)) {
    chosen.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(rows)));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace annulus::reference
