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
#include "client/gradient_sums.h"
#include "client/row_pairs.h"
#include "client/row_rule.h"
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
        tensors_(spec, tensors),
        mask_(spec),
        pairs_(spec, mask_,
               {tensors_.data(TensorId::kBias), tensors_.data(TensorId::kBitMask),
                tensors_.data(TensorId::kLseOffset)}),
        // Of fp32 nobody here knows whether the forward job multiplied numbers as bf16x3.
        tolerance_(2 * LseTolerance(spec.dtype == DataType::kFp32,
                                    /*bf16x3=*/spec.dtype == DataType::kFp32)) {}

  absl::Status Check(const std::vector<int64_t>& rows) const {
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      const std::vector<float> keys = tensors_.Rows(TensorId::kK, kv_head, 0, spec_.kv_rows());
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (const int64_t row : rows) RETURN_IF_ERROR(CheckRow(keys, head, row));
      }
    }
    return absl::OkStatus();
  }

 private:
  double ExactLse(const std::vector<float>& keys, int32_t head, int64_t row) const {
    const std::vector<float> q = tensors_.Rows(TensorId::kQ, head, row, 1);
    const RowRule rule = MakeRowRule(spec_, mask_, pairs_, head, row);
    std::vector<double> scores;
    if (rule.sink.has_value()) scores.push_back(*rule.sink);
    for (const Interval& seen : mask_.VisiblePacked(head, row)) {
      for (int64_t key = seen.begin; key < seen.end; ++key) {
        if (rule.Hides(key)) continue;
        const double product =
            Dot<double>(q.data(), &keys[key * spec_.head_dim], spec_.head_dim, Order());
        scores.push_back(ScoreOf(product, rule, key));
        if (std::isnan(scores.back())) return scores.back();
      }
    }
    return LogSumExp(scores);
  }

  absl::Status CheckRow(const std::vector<float>& keys, int32_t head, int64_t row) const {
    const double lse = tensors_.Rows(TensorId::kLse, head, row, 1)[0];
    return JudgeLse(row, head, lse, ExactLse(keys, head, row), tolerance_);
  }

  const AttentionSpec& spec_;
  const HeadTensors tensors_;
  const MaskMap mask_;
  const RowPairs pairs_;
  const double tolerance_;
};

}  // namespace

absl::Status JudgeLse(int64_t row, int32_t head, double lse, double exact, double tolerance) {
  const auto in_range = [](double value) { return std::isfinite(value) || value == -kInf; };
  if (!in_range(lse) || !in_range(exact) || lse == exact) return absl::OkStatus();
  const double off = exact - lse;  // Infinite where one of them says that nothing is seen.
  const double magnitude = std::isfinite(lse) ? std::max(1.0, std::abs(lse)) : 1;
  if (std::abs(off) <= tolerance * magnitude) return absl::OkStatus();
  const std::string sum = absl::StrFormat("%.6g", std::exp(off));
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("the lse of row ", row, ", head ", head,
                   " is not of these inputs: its weights sum to ", sum,
                   ", not 1; mask, scale, modifiers and sequences must be those of the forward "
                   "job, and lse a natural logarithm"),
      {"LSE_MISMATCH",
       {{"row", absl::StrCat(row)}, {"head", absl::StrCat(head)}, {"sum", sum}},
       {},
       {}});
}

absl::Status CheckLseOfRows(const AttentionSpec& spec,
                            const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                            uint64_t seed) {
  return LseChecker(spec, tensors).Check(PickRows(spec.q_rows(), count, seed));
}

}  // namespace annulus
