#include "client/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "attention/dropout.h"
#include "attention/error.h"
#include "attention/error_budget.h"
#include "attention/mask.h"
#include "attention/pair_error.h"
#include "attention/tensor_table.h"
#include "client/row_pairs.h"
#include "client/row_rule.h"
#include "client/verify_rows.h"

namespace annulus {
namespace {

// The naive error of few outputs is luck: it is taken over several orders of the keys, as if so
// many more outputs had been judged.
constexpr int64_t kSteadySample = 4096;
constexpr int64_t kMaxOrders = 32;
// What a product of numbers in two parts of bf16 is off, as a part of it.
constexpr double kOfParts = 3 * 0x1p-18;

struct Keys {
  std::vector<float> k, v;
  int32_t dim = 0, dim_v = 0;
};

struct Answer {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
  double max_logit = -std::numeric_limits<double>::infinity();
  double scale = 0;  // Σ P · max |v|.
  // In double alone. Of all scores, by their weights, and of the largest: |scale| · Σ|q · k|, and
  // what a soft cap leaves of that.
  double product = 0, product_of_max = 0;
};

// The visible rows in one of several orders: begun elsewhere, every second one backwards.
std::vector<int64_t> RowsInOrder(const Intervals& visible, const RowRule& rule, int64_t order,
                                 int64_t orders) {
  std::vector<int64_t> rows;
  for (const Interval& interval : visible) {
    for (int64_t row = interval.begin; row < interval.end; ++row) {
      if (!rule.Hides(row)) rows.push_back(row);
    }
  }
  const auto size = static_cast<int64_t>(rows.size());
  std::rotate(rows.begin(), rows.begin() + size * order / orders, rows.end());
  if (order % 2 == 1) std::reverse(rows.begin(), rows.end());
  return rows;
}

// What the naive answer multiplies by: numbers as they are, or in two parts of bf16.
struct Whole {
  template <typename Real>
  Real operator()(Real a, Real b) const {
    return a * b;
  }
};
struct OfParts {
  float operator()(float a, float b) const {
    const float a_high = High(a), b_high = High(b);
    const float a_low = Low(a, a_high), b_low = Low(b, b_high);
    return a_high * b_low + a_high * b_high + a_low * b_high;
  }
  static float High(float x) { return RoundTo(DataType::kBf16, x); }
  static float Low(float x, float high) { return std::isfinite(high) ? High(x - high) : 0; }
};

double ScoreMagnitude(const float* q, const float* k, int32_t dim, const RowRule& rule) {
  double product = 0, magnitude = 0;
  for (int32_t i = 0; i < dim; ++i) {
    const double term = static_cast<double>(q[i]) * static_cast<double>(k[i]);
    product += term;
    magnitude += std::abs(term);
  }
  magnitude *= std::abs(rule.scale);
  if (!rule.soft_cap.has_value()) return magnitude;
  const double part = std::tanh((product * rule.scale + rule.offset) / *rule.soft_cap);
  return magnitude * (1 - part * part);
}

// Of weights that are normalised, in the order of `rows`.
void AddProducts(const float* q, const Keys& keys, const std::vector<int64_t>& rows,
                 const RowRule& rule, const std::vector<double>& weights, Answer* answer) {
  double largest = -1;
  for (size_t n = 0; n < rows.size(); ++n) {
    const double product = ScoreMagnitude(q, &keys.k[rows[n] * keys.dim], keys.dim, rule);
    answer->product += weights[n] * product;
    if (weights[n] <= largest) continue;
    largest = weights[n];
    answer->product_of_max = product;
  }
}

// Scores, weights and sums in Real; weights rounded to `weights` before they meet the values.
template <typename Real, typename Product = Whole>
Answer Attend(const float* q, const Keys& keys, const std::vector<int64_t>& rows,
              const RowRule& rule, DataType weights) {
  const Product product;
  Answer answer;
  answer.out.assign(keys.dim_v, 0.0);
  std::vector<Real> scores;
  for (const int64_t row : rows) {
    Real sum = 0;
    for (int32_t i = 0; i < keys.dim; ++i) {
      sum += product(static_cast<Real>(q[i]), static_cast<Real>(keys.k[row * keys.dim + i]));
    }
    scores.push_back(ScoreOf(sum, rule, row));
  }
  if (rule.sink.has_value()) answer.lse = *rule.sink;
  if (scores.empty()) return answer;
  const Real most = *std::max_element(scores.begin(), scores.end());
  answer.max_logit = static_cast<double>(most);
  const Real sink = static_cast<Real>(rule.sink.value_or(0));
  const Real max = rule.sink.has_value() ? std::max(most, sink) : most;
  Real total = rule.sink.has_value() ? std::exp(sink - max) : Real(0);
  for (Real& score : scores) total += score = std::exp(score - max);
  std::vector<Real> out(keys.dim_v, 0);
  for (size_t n = 0; n < rows.size(); ++n) {
    Real weight = rule.Keeps(rows[n]) ? scores[n] / total / static_cast<Real>(rule.kept) : Real(0);
    if (sizeof(Real) == sizeof(float)) weight = RoundTo(weights, static_cast<float>(weight));
    const float* v = &keys.v[rows[n] * keys.dim_v];
    float largest = 0;
    for (int32_t i = 0; i < keys.dim_v; ++i) {
      out[i] += product(weight, static_cast<Real>(v[i]));
      largest = std::max(largest, std::abs(v[i]));
    }
    answer.scale += static_cast<double>(weight) * static_cast<double>(largest);
  }
  if constexpr (sizeof(Real) == sizeof(double)) {
    for (Real& score : scores) score /= total;
    AddProducts(q, keys, rows, rule, scores, &answer);
  }
  answer.out.assign(out.begin(), out.end());
  answer.lse = static_cast<double>(max) + std::log(static_cast<double>(total));
  if (std::isnan(answer.lse)) answer.max_logit = answer.lse;
  return answer;
}

class Verifier {
 public:
  Verifier(const AttentionSpec& spec, const VerifyInput& input)
      : spec_(spec),
        input_(input),
        table_(TensorTable(spec)),
        mask_(spec),
        pairs_(spec, mask_, {input.bias, input.bit_mask, input.lse_offset}) {
    if (spec.dropout.has_value()) dropout_.emplace(*spec.dropout);
  }

  VerifyReport Run(std::vector<int64_t> rows) {
    VerifyReport report;
    report.rows = std::move(rows);
    const auto outputs = static_cast<int64_t>(report.rows.size()) * spec_.value_dim();
    orders_ = std::clamp<int64_t>(kSteadySample / std::max<int64_t>(outputs, 1), 1, kMaxOrders);
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    std::vector<HeadErrors> heads(spec_.q_heads);
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      Keys keys;
      keys.dim = spec_.head_dim;
      keys.dim_v = spec_.value_dim();
      keys.k = HeadRows(table_[1], input_.k, kv_head, 0, spec_.kv_rows());
      keys.v = HeadRows(table_[2], input_.v, kv_head, 0, spec_.kv_rows());
      if (input_.bf16_partials) TakeMagnitudes(keys);
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t row : report.rows) Add(keys, head, row, &heads[head]);
      }
    }
    const std::vector<double> budgets = OutputBudgets(heads, outputs, UlpOf(spec_.output_dtype()));
    for (int32_t head = 0; head < spec_.q_heads; ++head) {
      report.lse_part = std::max(report.lse_part, heads[head].lse());
      // The head nearest to its budget, or farthest above it; multiplied, as a budget may be 0.
      const bool worse =
          heads[head].answer() * report.output_budget > report.output_error * budgets[head];
      if (head > 0 && !worse) continue;
      report.worst_head = head;
      report.output_error = heads[head].answer();
      report.output_budget = budgets[head];
    }
    return report;
  }

 private:
  RowRule RuleOf(int32_t head, int64_t row) const {
    RowRule rule = MakeRowRule(spec_, mask_, pairs_, head, row);
    if (!dropout_.has_value()) return rule;
    rule.dropout = &*dropout_;
    rule.kept = 1 - spec_.dropout->rate;
    return rule;
  }

  void TakeMagnitudes(const Keys& keys) {
    magnitudes_ = keys;
    for (float& value : magnitudes_.v) value = std::abs(value);
  }

  void Add(const Keys& keys, int32_t head, int64_t row, HeadErrors* errors) {
    const std::vector<float> q = HeadRows(table_[0], input_.q, head, row, 1);
    const Intervals visible = mask_.VisiblePacked(head, row);
    const RowRule rule = RuleOf(head, row);
    const Answer exact =
        Attend<double>(q.data(), keys, RowsInOrder(visible, rule, 0, 1), rule, spec_.dtype);
    errors->AddScale(exact.scale);
    if (input_.bf16_partials) {
      const Answer most = Attend<double>(q.data(), magnitudes_, RowsInOrder(visible, rule, 0, 1),
                                         rule, spec_.dtype);
      for (const double each : most.out) errors->Allow(kBf16PartialError * each);
    }
    const std::vector<float> out = HeadRows(table_[3], input_.out, head, row, 1);
    const size_t cell = (row * spec_.q_heads + head) * sizeof(float);
    const double base = spec_.outputs.lse_base == LseBase::k2 ? std::log(2.0) : 1;
    const bool parts = spec_.arithmetic == Arithmetic::kBf16x3;
    const auto allowance = [&](double unit, double product) {
      const double of_product = parts ? kOfParts * product : ErrorOfLogit(spec_.head_dim, product);
      return LseAllowance{LseTolerance(spec_.dtype == DataType::kFp32, parts), 1 / unit,
                          2 * of_product / unit};
    };
    float lse = 0, max_logit = 0;
    std::memcpy(&lse, input_.lse + cell, sizeof(lse));
    if (spec_.outputs.max_logit)
      std::memcpy(&max_logit, input_.max_logit + cell, sizeof(max_logit));
    for (int64_t order = 0; order < orders_; ++order) {
      const std::vector<int64_t> rows = RowsInOrder(visible, rule, order, orders_);
      const Answer naive = parts ? Attend<float, OfParts>(q.data(), keys, rows, rule, spec_.dtype)
                                 : Attend<float>(q.data(), keys, rows, rule, spec_.dtype);
      for (int32_t i = 0; i < keys.dim_v; ++i) {
        const float rounded = RoundTo(spec_.output_dtype(), static_cast<float>(naive.out[i]));
        errors->AddOutput(exact.out[i], rounded, out[i]);
      }
      errors->AddLse(exact.lse / base, naive.lse / base, lse, allowance(base, exact.product));
      if (!spec_.outputs.max_logit) continue;
      errors->AddLse(exact.max_logit, naive.max_logit, max_logit,
                     allowance(1, exact.product_of_max));
    }
  }

  const AttentionSpec& spec_;
  const VerifyInput& input_;
  const std::vector<TensorInfo> table_;
  const MaskMap mask_;
  const RowPairs pairs_;
  std::optional<DropoutRule> dropout_;
  Keys magnitudes_;  // Of a key/value head, with the sizes of its values; for bf16_partials.
  int64_t orders_ = 1;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed) {
  if (spec.operation != Operation::kForward) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     "only forward attention can be verified by the client",
                     {"NOT_SERVED", {}, {}, {}});
  }
  return Verifier(spec, input).Run(PickRows(spec.q_rows(), count, seed));
}

}  // namespace annulus
