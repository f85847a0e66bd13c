#include "client/lse_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/dtype.h"
#include "attention/error.h"
#include "attention/error_budget.h"
#include "attention/mask.h"
#include "attention/status_macros.h"
#include "client/row_pairs.h"
#include "client/verify_rows.h"

namespace annulus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double LogSumExp(const std::vector<double>& scores) {
  if (scores.empty()) return -kInf;
  const double most = *std::max_element(scores.begin(), scores.end());
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - most);
  return most + std::log(sum);
}

class LseChecker {
 public:
  LseChecker(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
      : spec_(spec),
        tensors_(tensors),
        table_(TensorTable(spec)),
        mask_(spec),
        pairs_(spec, mask_,
               {DataOf(TensorId::kBias), DataOf(TensorId::kBitMask), DataOf(TensorId::kLseOffset)}),
        // Of fp32 nobody here knows whether the forward job multiplied numbers as bf16x3.
        tolerance_(2 * LseTolerance(spec.dtype == DataType::kFp32,
                                    /*bf16x3=*/spec.dtype == DataType::kFp32)) {}

  absl::Status Check(const std::vector<int64_t>& rows) const {
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      const std::vector<float> keys = Rows(TensorId::kK, kv_head, 0, spec_.kv_rows());
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (const int64_t row : rows) RETURN_IF_ERROR(CheckRow(keys, head, row));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::byte* DataOf(TensorId id) const {
    const auto found = tensors_.find(id);
    return found == tensors_.end() ? nullptr : found->second;
  }

  std::vector<float> Rows(TensorId id, int32_t head, int64_t begin, int64_t count) const {
    return HeadRows(*FindTensor(table_, id), tensors_.at(id), head, begin, count);
  }

  // The formulas of docs/numerics.md, without the bias.
  double ScoreOf(const std::vector<float>& q, const float* key, int32_t head, double position,
                 double offset) const {
    double score = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      score += static_cast<double>(q[i]) * static_cast<double>(key[i]);
    }
    score = score * spec_.scale_or_default() + offset;
    const ScoreModifiers& modifiers = spec_.modifiers;
    if (modifiers.soft_cap) score = *modifiers.soft_cap * std::tanh(score / *modifiers.soft_cap);
    if (!modifiers.alibi_slopes.empty()) {
      score -= static_cast<double>(modifiers.alibi_slopes[head]) * std::abs(position);
    }
    return score;
  }

  double ExactLse(const std::vector<float>& keys, int32_t head, int64_t row) const {
    const std::vector<float> q = Rows(TensorId::kQ, head, row, 1);
    const double offset = pairs_.OffsetOf(head, row);
    std::vector<double> scores;
    if (!spec_.modifiers.sinks.empty()) scores.push_back(spec_.modifiers.sinks[head]);
    for (const Interval& seen : mask_.VisiblePacked(head, row)) {
      for (int64_t key = seen.begin; key < seen.end; ++key) {
        const double bias = pairs_.BiasAt(head, row, key);
        if (bias == -kInf) continue;
        const auto away = static_cast<double>(mask_.Position(head, row) - key);
        scores.push_back(bias + ScoreOf(q, &keys[key * spec_.head_dim], head, away, offset));
        if (std::isnan(scores.back())) return scores.back();
      }
    }
    return LogSumExp(scores);
  }

  absl::Status CheckRow(const std::vector<float>& keys, int32_t head, int64_t row) const {
    const double lse = Rows(TensorId::kLse, head, row, 1)[0];
    const double exact = ExactLse(keys, head, row);
    const auto in_range = [](double value) { return std::isfinite(value) || value == -kInf; };
    if (!in_range(lse) || !in_range(exact) || lse == exact) return absl::OkStatus();
    const double off = exact - lse;  // Infinite where one of them says that nothing is seen.
    const double magnitude = std::isfinite(lse) ? std::max(1.0, std::abs(lse)) : 1;
    if (std::abs(off) <= tolerance_ * magnitude) return absl::OkStatus();
    const std::string sum = absl::StrFormat("%.6g", std::exp(off));
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("the lse of row ", row, ", head ", head,
                     " is not of these inputs: its weights sum to ", sum,
                     ", not 1; mask, scale, modifiers and sequences must be those of the forward "
                     "job"),
        {"LSE_MISMATCH",
         {{"row", absl::StrCat(row)}, {"head", absl::StrCat(head)}, {"sum", sum}},
         {},
         {}});
  }

  const AttentionSpec& spec_;
  const std::map<TensorId, const std::byte*>& tensors_;
  const std::vector<TensorInfo> table_;
  const MaskMap mask_;
  const RowPairs pairs_;
  const double tolerance_;
};

}  // namespace

absl::Status CheckLseOfRows(const AttentionSpec& spec,
                            const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                            uint64_t seed) {
  return LseChecker(spec, tensors).Check(PickRows(spec.q_rows(), count, seed));
}

}  // namespace annulus
