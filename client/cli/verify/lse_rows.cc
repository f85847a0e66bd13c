#include "client/cli/verify/lse_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/numerics/error_budget.h"
#include "attention/spec/dtype.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/row_norms.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class LseChecker {
 public:
  LseChecker(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
      : spec_(spec),
        job_(spec, tensors),
        // It is unknown if the fp32 forward job multiplied in bf16x3; allow for it.
        tolerance_(2 * LseTolerance(spec.dtype == DataType::kFp32,
                                    /*bf16x3=*/spec.dtype == DataType::kFp32)) {}

  absl::Status Check(const std::vector<int64_t>& rows) const {
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      std::vector<RowCell> cells;
      for (int32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (const int64_t row : rows) cells.push_back({head, row});
      }
      const std::vector<RowNorm> norms = NormsOf(job_, cells, /*naive=*/false);
      for (size_t n = 0; n < cells.size(); ++n) {
        RETURN_IF_ERROR(CheckRow(cells[n].head, cells[n].row, norms[n].exact.Lse()));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckRow(int32_t head, int64_t row, double exact) const {
    const double lse = job_.tensors().Rows(TensorId::kLse, head, row, 1)[0];
    return JudgeLse(row, head, lse, exact, tolerance_);
  }

  const AttentionSpec& spec_;
  const JobRows job_;
  const double tolerance_;
};

}  // namespace

absl::Status JudgeLse(int64_t row, int32_t head, double lse, double exact, double tolerance) {
  const auto in_range = [](double value) { return std::isfinite(value) || value == -kInf; };
  if (!in_range(lse) || !in_range(exact) || lse == exact) return absl::OkStatus();
  // Infinite if exactly one of them is −∞ (no visible key).
  const double off = exact - lse;
  const double magnitude = std::isfinite(lse) ? std::max(1.0, std::abs(lse)) : 1;
  if (std::abs(off) <= tolerance * magnitude) return absl::OkStatus();
  const std::string sum = absl::StrFormat("%.6g", std::exp(off));
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("the lse of row ", row, ", head ", head,
                   " does not match these inputs: its weights sum to ", sum,
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
