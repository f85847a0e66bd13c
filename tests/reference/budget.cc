#include "tests/reference/budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace annulus::reference {

void ForwardErrors::AddRow(const Input& input, const Answer& answer, int32_t head, size_t index) {
  Head& to = heads_[static_cast<size_t>(head)];
  const int64_t q_row = answer.rows[index];
  const Row exact = ExactRow(input, q_row, head);
  const Row naive = NaiveRow(input, q_row, head, answer.inputs, answer.output);
  const size_t cell = index * static_cast<size_t>(input.q_heads) + static_cast<size_t>(head);
  const HeadErrors before = to.errors;
  to.errors.AddScale(exact.scale);
  for (size_t d = 0; d < exact.out.size(); ++d) {
    to.errors.AddOutput(exact.out[d], naive.out[d], answer.out[cell * exact.out.size() + d]);
  }
  const double base = answer.lse_base_2 ? std::log(2.0) : 1.0;
  to.errors.AddLse(exact.lse / base, naive.lse / base, answer.lse[cell],
                   {lse_tolerance_, 1 / base});
  if (!answer.max_logit.empty())
    to.errors.AddLse(exact.max_logit, naive.max_logit, answer.max_logit[cell], {lse_tolerance_});
  if (to.errors.answer() > before.answer()) to.worst_row = q_row;
  if (to.errors.lse() > before.lse()) to.worst_lse_row = q_row;
}

void ForwardErrors::AllowForRounding(const Input& input, const Answer& answer) {
  Input magnitudes = input;
  for (double& value : magnitudes.v) value = std::abs(value);
  for (int32_t head = 0; head < input.q_heads; ++head) {
    for (const int64_t row : answer.rows) {
      for (const double most : ExactRow(magnitudes, row, head).out)
        heads_[static_cast<size_t>(head)].errors.Allow(kBf16PartialError * most);
    }
  }
}

testing::AssertionResult ForwardErrors::Add(const Input& input, const Answer& given) {
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
  heads_.resize(static_cast<size_t>(input.q_heads));
  outputs_ = static_cast<int64_t>(answer.rows.size()) * input.value_dim;
  output_ = answer.output;
  lse_tolerance_ =
      LseTolerance(answer.inputs == Precision::kFp32, answer.inputs == Precision::kBf16x3);
  for (int32_t head = 0; head < input.q_heads; ++head) {
    for (size_t i = 0; i < answer.rows.size(); ++i) AddRow(input, answer, head, i);
  }
  if (answer.bf16_partials) AllowForRounding(input, answer);
  return testing::AssertionSuccess();
}

testing::AssertionResult ForwardErrors::Judge(const Slack& slack) const {
  std::vector<HeadErrors> errors;
  for (const Head& head : heads_) errors.push_back(head.errors);
  const std::vector<double> budgets = OutputBudgets(errors, outputs_, UlpsOf(output_));
  for (size_t head = 0; head < heads_.size(); ++head) {
    const HeadErrors& found = errors[head];
    const double budget = slack.times * budgets[head] + slack.relative * found.largest();
    if (!std::isfinite(found.answer()) || (!slack.any_number && !(found.answer() <= budget))) {
      return testing::AssertionFailure()
             << "head " << head << " row " << heads_[head].worst_row << ": output error "
             << found.answer() << " above its budget " << budget << " (naive error "
             << found.naive() << ")";
    }
    const double lse_budget = slack.times + slack.relative / lse_tolerance_;
    if (!std::isfinite(found.lse()) || (!slack.any_number && !(found.lse() <= lse_budget))) {
      return testing::AssertionFailure() << "head " << head << " row " << heads_[head].worst_lse_row
                                         << ": LSE error is " << found.lse() << " x its budget";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult CheckWithinBudget(const Input& input, const Answer& answer) {
  ForwardErrors errors;
  const testing::AssertionResult added = errors.Add(input, answer);
  return added ? errors.Judge() : added;
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
