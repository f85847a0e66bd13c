#ifndef ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_
#define ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/spec/spec.h"

namespace annulus {

// The packed tensors of a finished job, as TensorTable(spec) lists them.
struct VerifyInput {
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* out = nullptr;
  const std::byte* lse = nullptr;
  // Null unless the spec asks for them.
  const std::byte* max_logit = nullptr;
  const std::byte* bias = nullptr;
  const std::byte* bit_mask = nullptr;
  const std::byte* lse_offset = nullptr;
  // True if the job's partials travelled in bf16: the budget is then larger.
  bool bf16_partials = false;
};

struct VerifyReport {
  std::vector<int64_t> rows;  // The packed query rows that were recomputed.
  int32_t worst_head = 0;     // The head with the largest ratio of error and budget.
  double output_error = 0;    // Its largest difference from fp64.
  double output_budget = 0;   // Its budget by docs/reference/numerics.md.
  // The largest difference of an LSE or max_logit from fp64, as a part of the allowed difference.
  double lse_part = 0;
  bool within() const { return output_error <= output_budget && lse_part <= 1; }
};

// Recomputes `count` query rows (all if there are fewer), selected by `seed`, of every head in
// fp64: three loops that share only the mask rule, dropout and element conversion with the service.
// The budget is that of docs/reference/numerics.md (attention/numerics/error_budget.h) for each
// head over these rows. For few rows, the naive error is the largest over up to 32 orders of the
// keys. Uses all CPUs of this thread; the results do not depend on their number. Memory does not
// grow with the keys. UNIMPLEMENTED / NOT_SERVED for gradients.
absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_
