#ifndef ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_

#include <cstdint>
#include <vector>

#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/row_norms.h"

namespace annulus {

// The normalisation of the weights of a gradients job, for its verifier. It is computed from the
// scores, not from the given LSE: beside a score of −1e9, fp32 has no room for the LSE.
//
// The given LSE is used as it is if:
// - it is not finite: a row of −∞ adds nothing, and a NaN must show
// - the scores of the whole job would take more than 2^35 multiplications, the row was not picked,
//   and |LSE| <= 64, so that its rounding does not matter

enum class GivenLse {
  kJudged,  // From a forward job: weights are computed from the scores.
  kTaken,   // Synthetic: it defines the weights, and every LSE is used as it is.
};

// The norms for the query heads of one key/value head: [head of the group][packed query row]. Set
// only for the query rows `q_rows` and for those that see a key row of `k_rows`. Both lists are
// packed rows in increasing order.
std::vector<std::vector<RowNorm>> GradientNorms(const JobRows& job, int32_t kv_head,
                                                const std::vector<int64_t>& q_rows,
                                                const std::vector<int64_t>& k_rows, GivenLse lse);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_
