#include "client/cli/verify/lse_probe.h"

#include <algorithm>
#include <vector>

#include "attention/spec/interval.h"
#include "base/status_macros.h"
#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/lse_rows.h"
#include "client/cli/verify/row_norms.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {
namespace {

constexpr int64_t kRows = 16, kMostProducts = int64_t{1} << 26;
constexpr uint64_t kSeed = 1;
constexpr double kTolerance = 1.0 / 32;

struct Cell {
  RowCell at;
  int64_t keys = 0;
};

std::vector<Cell> CellsOf(const JobRows& job) {
  const AttentionSpec& spec = job.spec();
  std::vector<Cell> cells;
  for (const int64_t each : PickRows(spec.q_rows() * spec.q_heads, kRows, kSeed)) {
    Cell cell;
    cell.at = {static_cast<int32_t>(each % spec.q_heads), each / spec.q_heads};
    for (const Interval& seen : job.mask().VisiblePacked(cell.at.head, cell.at.row))
      cell.keys += seen.length();
    cells.push_back(cell);
  }
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return a.keys < b.keys; });
  return cells;
}

}  // namespace

absl::Status CheckLseOfFew(const AttentionSpec& spec,
                           const std::map<TensorId, const std::byte*>& tensors) {
  const JobRows job(spec, tensors);
  int64_t products = 0;
  for (const Cell& cell : CellsOf(job)) {
    const int64_t more = cell.keys * spec.head_dim;
    if (products > 0 && products + more > kMostProducts) break;
    products += more;
    const double lse = job.tensors().Rows(TensorId::kLse, cell.at.head, cell.at.row, 1)[0];
    const double exact = NormsOf(job, {cell.at}, /*naive=*/false)[0].exact.Lse();
    RETURN_IF_ERROR(JudgeLse(cell.at.row, cell.at.head, lse, exact, kTolerance));
  }
  return absl::OkStatus();
}

}  // namespace annulus
