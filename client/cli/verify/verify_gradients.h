#ifndef ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/verify/gradient_norms.h"

namespace annulus {

struct GradientReport {
  int64_t q_rows = 0, k_rows = 0;  // The number of recomputed rows.
  // The tensor and head with the largest ratio of error and budget.
  TensorId worst_tensor = TensorId::kDq;
  int32_t worst_head = 0;
  double error = 0;   // Its largest difference from fp64.
  double budget = 0;  // Its budget by docs/reference/numerics.md.
  bool within() const { return error <= budget; }
};

// VerifyRows() (client/cli/verify/verify.h) for a finished gradients job. Recomputes in fp64, for
// every head and on all threads:
// - for `count` query rows: dq, and d_sink and d_bias if the job has them
// - for `count` key rows: dk and dv
//
// The inputs are used as given, except the LSE: the weights are normalised from the scores
// (client/cli/verify/gradient_norms.h). `tensors`: all of TensorTable(spec), packed.
GradientReport VerifyGradients(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, GivenLse lse = GivenLse::kJudged);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_
