#include "client/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "attention/error.h"
#include "attention/mask.h"
#include "attention/tensor_table.h"

namespace annulus {
namespace {

// One head of rows [begin, begin + count) of a tensor, as floats.
std::vector<float> HeadRows(const TensorInfo& tensor, const std::byte* base, int32_t head,
                            int64_t begin, int64_t count) {
  std::vector<float> values(count * tensor.dim);
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  for (int64_t row = 0; row < count; ++row) {
    ConvertToFp32(tensor.dtype, base + (begin + row) * tensor.row_bytes() + head * head_bytes,
                  tensor.dim, values.data() + row * tensor.dim);
  }
  return values;
}

float RoundTo(DataType dtype, float value) {
  if (dtype == DataType::kBf16) return Bf16ToFp32(Fp32ToBf16(value));
  if (dtype == DataType::kFp16) return Fp16ToFp32(Fp32ToFp16(value));
  return value;
}

// The distance of neighbouring numbers of the type at `value`.
double Ulp(DataType dtype, double value) {
  const int bits = dtype == DataType::kBf16 ? 7 : dtype == DataType::kFp16 ? 10 : 23;
  return value == 0 ? 0 : std::ldexp(1.0, std::ilogb(value) - bits);
}

struct Keys {
  std::vector<float> k, v;
  int32_t dim = 0, dim_v = 0;
};

struct Answer {
  std::vector<double> out;
  double lse = -std::numeric_limits<double>::infinity();
};

// Scores, weights and sums in Real; weights rounded to `weights` before they meet the values.
template <typename Real>
Answer Attend(const float* q, const Keys& keys, const Intervals& visible, Real scale,
              DataType weights) {
  Answer answer;
  answer.out.assign(keys.dim_v, 0.0);
  std::vector<Real> scores;
  std::vector<int64_t> rows;
  for (const Interval& interval : visible) {
    for (int64_t row = interval.begin; row < interval.end; ++row) {
      Real sum = 0;
      for (int32_t i = 0; i < keys.dim; ++i) {
        sum += static_cast<Real>(q[i]) * static_cast<Real>(keys.k[row * keys.dim + i]);
      }
      scores.push_back(sum * scale);
      rows.push_back(row);
    }
  }
  if (scores.empty()) return answer;
  const Real max = *std::max_element(scores.begin(), scores.end());
  Real total = 0;
  for (Real& score : scores) total += score = std::exp(score - max);
  std::vector<Real> out(keys.dim_v, 0);
  for (size_t n = 0; n < rows.size(); ++n) {
    Real weight = scores[n] / total;
    if (sizeof(Real) == sizeof(float)) weight = RoundTo(weights, static_cast<float>(weight));
    for (int32_t i = 0; i < keys.dim_v; ++i) out[i] += weight * keys.v[rows[n] * keys.dim_v + i];
  }
  answer.out.assign(out.begin(), out.end());
  answer.lse = static_cast<double>(max) + std::log(static_cast<double>(total));
  return answer;
}

// NaN counts as infinitely wrong; equal infinities are right.
double Difference(double a, double b) {
  if (a == b) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// Packed rows, distinct, in order.
std::vector<int64_t> PickRows(int64_t rows, int64_t count, uint64_t seed) {
  std::set<int64_t> picked;
  std::mt19937_64 random(seed);
  if (count >= rows) {
    for (int64_t row = 0; row < rows; ++row) picked.insert(row);
  }
  while (static_cast<int64_t>(picked.size()) < std::min(count, rows))
    picked.insert(random() % rows);
  return {picked.begin(), picked.end()};
}

class Verifier {
 public:
  Verifier(const AttentionSpec& spec, const VerifyInput& input)
      : spec_(spec), input_(input), table_(TensorTable(spec)), mask_(spec) {}

  VerifyReport Run(std::vector<int64_t> rows) {
    report_.rows = std::move(rows);
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      Keys keys;
      keys.dim = spec_.head_dim;
      keys.dim_v = spec_.value_dim();
      keys.k = HeadRows(table_[1], input_.k, kv_head, 0, spec_.kv_rows());
      keys.v = HeadRows(table_[2], input_.v, kv_head, 0, spec_.kv_rows());
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t row : report_.rows) Check(keys, head, row);
      }
    }
    report_.output_budget = 2 * naive_error_ + Ulp(spec_.output_dtype(), largest_) / 2;
    return report_;
  }

 private:
  void Check(const Keys& keys, int32_t head, int64_t row) {
    const std::vector<float> q = HeadRows(table_[0], input_.q, head, row, 1);
    const Intervals visible = mask_.VisiblePacked(head, row);
    const double scale = spec_.scale_or_default();
    const Answer exact = Attend<double>(q.data(), keys, visible, scale, spec_.dtype);
    const Answer naive =
        Attend<float>(q.data(), keys, visible, static_cast<float>(scale), spec_.dtype);
    const std::vector<float> out = HeadRows(table_[3], input_.out, head, row, 1);
    for (int32_t i = 0; i < keys.dim_v; ++i) {
      const float rounded = RoundTo(spec_.output_dtype(), static_cast<float>(naive.out[i]));
      naive_error_ = std::max(naive_error_, Difference(rounded, exact.out[i]));
      report_.output_error = std::max(report_.output_error, Difference(out[i], exact.out[i]));
      largest_ = std::max(largest_, std::abs(exact.out[i]));
    }
    float lse = 0;
    std::memcpy(&lse, input_.lse + row * table_[4].row_bytes() + head * sizeof(float), sizeof(lse));
    const double allowed = (spec_.dtype == DataType::kFp32 ? 1e-5 : 1e-3) *
                           std::max(1.0, std::isinf(exact.lse) ? 1.0 : std::abs(exact.lse));
    report_.lse_part = std::max(report_.lse_part, Difference(lse, exact.lse) / allowed);
  }

  const AttentionSpec& spec_;
  const VerifyInput& input_;
  const std::vector<TensorInfo> table_;
  const MaskMap mask_;
  VerifyReport report_;
  double naive_error_ = 0, largest_ = 0;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed) {
  const ScoreModifiers& modifiers = spec.modifiers;
  if (spec.operation != Operation::kForward || modifiers.soft_cap.has_value() ||
      !modifiers.alibi_slopes.empty() || !modifiers.sinks.empty() || spec.dropout.has_value() ||
      spec.outputs.lse_base != LseBase::kE) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     "only plain forward attention can be verified by the client",
                     {"NOT_SERVED", {}, {}, {}});
  }
  return Verifier(spec, input).Run(PickRows(spec.q_rows(), count, seed));
}

}  // namespace annulus
