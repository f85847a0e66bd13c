#ifndef ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_

#include <cstdint>
#include <vector>

#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/row_norms.h"

namespace annulus {

// What the weights of a job of gradients are divided by, for its verifier, made from the scores and
// not from the LSE that the job was given: fp32 has no room for it beside a score of −1e9.
//
// An LSE that is not finite stands: a row of −∞ adds nothing, and a NaN shows. Where all scores
// would be more than 2^35 multiplications, the LSE stands in rows that were not picked, too, as
// long as it is so near 0 (64) that its rounding is of no weight.

enum class GivenLse {
  kJudged,  // Of a forward job: weights are made from the scores.
  kTaken,   // A made number that the weights are defined by; every LSE stands.
};

// Of the query heads of one key/value head, [head of the group][packed query row], filled in where
// they are needed: for the query rows `q_rows` and those that see one of the key rows `k_rows`,
// both packed and increasing.
std::vector<std::vector<RowNorm>> GradientNorms(const JobRows& job, int32_t kv_head,
                                                const std::vector<int64_t>& q_rows,
                                                const std::vector<int64_t>& k_rows, GivenLse lse);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_GRADIENT_NORMS_H_
