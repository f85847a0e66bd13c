#include "tests/reference/budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "attention/error_budget.h"

namespace annulus::reference {
namespace {

// One head, and the rows at which its errors were largest.
struct Head {
  HeadErrors errors;
  int64_t worst_row = 0, worst_lse_row = 0;
};

void AddRow(const Input& input, const Answer& answer, int32_t head, size_t index, Head* to) {
  const int64_t q_row = answer.rows[index];
  const Row exact = ExactRow(input, q_row, head);
  const Row naive = NaiveRow(input, q_row, head, answer.inputs, answer.output);
  const size_t cell = index * static_cast<size_t>(input.q_heads) + static_cast<size_t>(head);
  const HeadErrors before = to->errors;
  for (size_t d = 0; d < exact.out.size(); ++d) {
    to->errors.AddOutput(exact.out[d], naive.out[d], answer.out[cell * exact.out.size() + d]);
  }
  const double tolerance =
      LseTolerance(answer.inputs == Precision::kFp32, answer.inputs == Precision::kBf16x3);
  const double base = answer.lse_base_2 ? std::log(2.0) : 1.0;
  to->errors.AddLse(exact.lse / base, naive.lse / base, answer.lse[cell], tolerance);
  if (!answer.max_logit.empty())
    to->errors.AddLse(exact.max_logit, naive.max_logit, answer.max_logit[cell], tolerance);
  if (to->errors.answer() > before.answer()) to->worst_row = q_row;
  if (to->errors.lse() > before.lse()) to->worst_lse_row = q_row;
}

testing::AssertionResult Judge(const Head& judged, double budget, int32_t head) {
  const HeadErrors& errors = judged.errors;
  if (!(errors.answer() <= budget)) {
    return testing::AssertionFailure()
           << "head " << head << " row " << judged.worst_row << ": output error " << errors.answer()
           << " above its budget " << budget << " (naive error " << errors.naive() << ")";
  }
  if (!(errors.lse() <= 1)) {
    return testing::AssertionFailure() << "head " << head << " row " << judged.worst_lse_row
                                       << ": LSE error is " << errors.lse() << " x its budget";
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
      (!answer.max_logit.empty() && answer.max_logit.size() != cells) ||
      answer.out.size() != cells * static_cast<size_t>(input.value_dim)) {
    return testing::AssertionFailure() << "wrong size: " << answer.out.size() << " outputs and "
                                       << answer.lse.size() << " LSE for " << cells << " cells";
  }
  std::vector<Head> heads(static_cast<size_t>(input.q_heads));
  std::vector<HeadErrors> errors;
  for (int32_t head = 0; head < input.q_heads; ++head) {
    for (size_t i = 0; i < answer.rows.size(); ++i) AddRow(input, answer, head, i, &heads[head]);
    errors.push_back(heads[head].errors);
  }
  const std::vector<double> budgets = OutputBudgets(
      errors, static_cast<int64_t>(answer.rows.size()) * input.value_dim, UlpsOf(answer.output));
  for (int32_t head = 0; head < input.q_heads; ++head) {
    const testing::AssertionResult result = Judge(heads[head], budgets[head], head);
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
