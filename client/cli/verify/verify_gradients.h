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
  int64_t q_rows = 0, k_rows = 0;         // Recomputed.
  TensorId worst_tensor = TensorId::kDq;  // The head nearest to its budget, or farthest above.
  int32_t worst_head = 0;
  double error = 0;   // Its largest difference from fp64.
  double budget = 0;  // What docs/reference/numerics.md allows it.
  bool within() const { return error <= budget; }
};

// VerifyRows (client/cli/verify/verify.h) for a finished job of gradients: recomputes dq and, where
// the job has them, d_sink and d_bias of `count` query rows and dk and dv of as many key rows in
// fp64, every head, on all threads, from the inputs as given; but for the LSE: what weights are
// divided by is made from the scores (client/cli/verify/gradient_norms.h). `tensors`: all of
// TensorTable(spec), packed.
GradientReport VerifyGradients(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, GivenLse lse = GivenLse::kJudged);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_GRADIENTS_H_
