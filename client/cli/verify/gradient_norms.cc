#include "client/cli/verify/gradient_norms.h"

#include <algorithm>
#include <cmath>

namespace annulus {
namespace {

constexpr double kMostProducts = 0x1p35;
constexpr float kSmallLse = 64;

bool AllScoresAreFew(const JobRows& job) {
  const AttentionSpec& spec = job.spec();
  double pairs = 0;
  for (int32_t head = 0; head < spec.q_heads; ++head) {
    pairs += static_cast<double>(job.mask().Area(head, {0, spec.q_rows()}, {0, spec.kv_rows()}));
  }
  return pairs * spec.head_dim <= kMostProducts;
}

bool SeesOneOf(const Intervals& seen, const std::vector<int64_t>& keys) {
  return std::any_of(seen.begin(), seen.end(), [&keys](const Interval& interval) {
    const auto next = std::lower_bound(keys.begin(), keys.end(), interval.begin);
    return next != keys.end() && *next < interval.end;
  });
}

RowNorm OfLse(float lse) { return {{lse, 1}, {lse, 1}}; }

}  // namespace

std::vector<std::vector<RowNorm>> GradientNorms(const JobRows& job, int32_t kv_head,
                                                const std::vector<int64_t>& q_rows,
                                                const std::vector<int64_t>& k_rows, GivenLse use) {
  const int32_t group = job.spec().q_heads / job.spec().kv_heads, first = kv_head * group;
  const int64_t rows = job.spec().q_rows();
  std::vector<std::vector<RowNorm>> norms(group, std::vector<RowNorm>(rows));
  std::vector<std::vector<float>> lse;
  for (int32_t n = 0; n < group; ++n) {
    lse.push_back(job.tensors().Rows(TensorId::kLse, first + n, 0, rows));
  }
  const bool all = AllScoresAreFew(job);
  std::vector<RowCell> cells;
  for (int64_t row = 0; row < rows; ++row) {
    const bool picked = std::binary_search(q_rows.begin(), q_rows.end(), row);
    for (int32_t n = 0; n < group; ++n) {
      if (!picked && !SeesOneOf(job.mask().VisiblePacked(first + n, row), k_rows)) continue;
      const float given = lse[n][row];
      const bool stands = use == GivenLse::kTaken || !std::isfinite(given) ||
                          (!all && !picked && std::abs(given) <= kSmallLse);
      if (stands) norms[n][row] = OfLse(given);
      if (!stands) cells.push_back({first + n, row});
    }
  }
  const std::vector<RowNorm> made = NormsOf(job, cells, /*naive=*/true);
  for (size_t i = 0; i < cells.size(); ++i) norms[cells[i].head - first][cells[i].row] = made[i];
  return norms;
}

}  // namespace annulus
