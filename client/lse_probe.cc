#include "client/lse_probe.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/mask.h"
#include "attention/status_macros.h"
#include "client/lse_rows.h"
#include "client/row_pairs.h"
#include "client/row_rule.h"
#include "client/verify_rows.h"

namespace annulus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kRows = 16, kMostProducts = int64_t{1} << 26, kBlockKeys = 1024;
constexpr uint64_t kSeed = 1;
constexpr double kTolerance = 1.0 / 32;

// log Σ exp of numbers that come one by one.
class RunningLse {
 public:
  void Add(double score) {
    if (std::isnan(most_) || score == -kInf) return;
    if (score <= most_) {
      sum_ += std::exp(score - most_);
      return;
    }
    sum_ = sum_ * std::exp(most_ - score) + 1;
    most_ = score;
  }
  double Value() const { return std::isfinite(most_) ? most_ + std::log(sum_) : most_; }

 private:
  double most_ = -kInf, sum_ = 0;
};

double Product(float a, float b) { return static_cast<double>(a) * static_cast<double>(b); }

// A row of a head.
struct Cell {
  int64_t row = 0;
  int32_t head = 0;
  Intervals seen;
  int64_t keys = 0;
};

class Probe {
 public:
  Probe(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
      : spec_(spec),
        tensors_(spec, tensors),
        mask_(spec),
        pairs_(spec, mask_,
               {tensors_.data(TensorId::kBias), tensors_.data(TensorId::kBitMask),
                tensors_.data(TensorId::kLseOffset)}) {}

  absl::Status Check() const {
    int64_t products = 0;
    for (const Cell& cell : Cells()) {
      const int64_t more = cell.keys * spec_.head_dim;
      if (products > 0 && products + more > kMostProducts) break;
      products += more;
      RETURN_IF_ERROR(CheckCell(cell));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<Cell> Cells() const {
    std::vector<Cell> cells;
    for (const int64_t each : PickRows(spec_.q_rows() * spec_.q_heads, kRows, kSeed)) {
      Cell cell;
      cell.row = each / spec_.q_heads;
      cell.head = static_cast<int32_t>(each % spec_.q_heads);
      cell.seen = mask_.VisiblePacked(cell.head, cell.row);
      for (const Interval& seen : cell.seen) cell.keys += seen.length();
      cells.push_back(std::move(cell));
    }
    std::sort(cells.begin(), cells.end(),
              [](const Cell& a, const Cell& b) { return a.keys < b.keys; });
    return cells;
  }

  void AddKeys(const Cell& cell, const std::vector<float>& q, const RowRule& rule, int64_t begin,
               int64_t end, RunningLse* lse) const {
    const int32_t kv_head = cell.head / (spec_.q_heads / spec_.kv_heads);
    const std::vector<float> keys = tensors_.Rows(TensorId::kK, kv_head, begin, end - begin);
    for (int64_t key = begin; key < end; ++key) {
      if (rule.Hides(key)) continue;
      const float* const row = &keys[(key - begin) * spec_.head_dim];
      lse->Add(ScoreOf(std::inner_product(q.begin(), q.end(), row, 0.0, std::plus<>(), Product),
                       rule, key));
    }
  }

  double ExactLse(const Cell& cell) const {
    const std::vector<float> q = tensors_.Rows(TensorId::kQ, cell.head, cell.row, 1);
    const RowRule rule = MakeRowRule(spec_, mask_, pairs_, cell.head, cell.row);
    RunningLse lse;
    if (rule.sink.has_value()) lse.Add(*rule.sink);
    for (const Interval& seen : cell.seen) {
      for (int64_t key = seen.begin; key < seen.end; key += kBlockKeys) {
        AddKeys(cell, q, rule, key, std::min(key + kBlockKeys, seen.end), &lse);
      }
    }
    return lse.Value();
  }

  absl::Status CheckCell(const Cell& cell) const {
    const double lse = tensors_.Rows(TensorId::kLse, cell.head, cell.row, 1)[0];
    return JudgeLse(cell.row, cell.head, lse, ExactLse(cell), kTolerance);
  }

  const AttentionSpec& spec_;
  const HeadTensors tensors_;
  const MaskMap mask_;
  const RowPairs pairs_;
};

}  // namespace

absl::Status CheckLseOfFew(const AttentionSpec& spec,
                           const std::map<TensorId, const std::byte*>& tensors) {
  return Probe(spec, tensors).Check();
}

}  // namespace annulus
