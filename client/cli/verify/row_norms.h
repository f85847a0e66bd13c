#ifndef ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "client/cli/verify/job_rows.h"

namespace annulus {

// The normaliser of a row's weights, from its scores in any number of steps: sum = Σ exp(score −
// max). NaN if a score is NaN or +∞.
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
    // A NaN stays a NaN.
    sum *= max == -std::numeric_limits<Real>::infinity() ? 0 : std::exp(max - most);
    max = most;
  }
};

// The normalisers of one query row and head, with the sink, before dropout: in fp64, and in fp32 by
// the naive computation of docs/reference/numerics.md.
struct RowNorm {
  WeightSum<double> exact;
  // From products summed in another order than in ScoresOf().
  WeightSum<float> naive;

  // The weight exp(score − LSE), as with an fp32 LSE while its precision suffices; else from max
  // and sum.
  float NaiveWeightOf(float score) const;
};

// The normalisers of `cells`, which share one key/value head, from their scores, on all threads.
// The results do not depend on the number of threads. Keys are read in blocks. Cost: one dot
// product of `head_dim` numbers for each pair, two with `naive`.
std::vector<RowNorm> NormsOf(const JobRows& job, const std::vector<RowCell>& cells, bool naive);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_ROW_NORMS_H_
