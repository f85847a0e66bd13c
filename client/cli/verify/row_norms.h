#ifndef ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "client/cli/verify/job_rows.h"

namespace annulus {

// The sum that a row's weights are divided by, made from its scores as they come: sum = Σ exp(score
// − max). NaN where a score is NaN or +∞.
template <typename Real>
struct WeightSum {
  Real max = -std::numeric_limits<Real>::infinity();
  Real sum = 0;

  void Add(const std::vector<Real>& scores) {
    Real most = max;
    for (const Real score : scores) most = std::max(most, score);
    RaiseTo(most);
    for (const Real score : scores) {
      if (score != -std::numeric_limits<Real>::infinity()) sum += std::exp(score - max);
    }
  }
  void Merge(WeightSum other) {
    const Real most = std::max(max, other.max);
    RaiseTo(most);
    other.RaiseTo(most);
    sum += other.sum;
  }
  Real WeightOf(Real score) const { return std::exp(score - max) / sum; }
  Real Lse() const { return max + std::log(sum); }

 private:
  void RaiseTo(Real most) {
    if (!(most > max)) return;
    sum *= max == -std::numeric_limits<Real>::infinity() ? 0 : std::exp(max - most);  // NaN stays.
    max = most;
  }
};

// Of one query row and head, sink included, before dropout: in fp64, and as the naive computation
// of docs/reference/numerics.md has it, in fp32.
struct RowNorm {
  WeightSum<double> exact;
  WeightSum<float> naive;  // Of products that are summed in another order than ScoresOf has.

  // By the sum's logarithm, as an fp32 LSE has it, as long as that has room for it.
  float NaiveWeightOf(float score) const;
};

// Those of rows and heads that share one key/value head, from their scores alone, on all threads;
// no number depends on how many these are. Keys are read in blocks. Costs a product of queries and
// keys of `head_dim` numbers for each pair, twice with `naive`.
std::vector<RowNorm> NormsOf(const JobRows& job, const std::vector<RowCell>& cells, bool naive);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_
