#ifndef ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_
#define ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/spec/spec.h"

namespace annulus {

// Packed tensors of a finished job, as TensorTable(spec) lists them.
struct VerifyInput {
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* out = nullptr;
  const std::byte* lse = nullptr;
  // Where the spec asks for them.
  const std::byte* max_logit = nullptr;
  const std::byte* bias = nullptr;
  const std::byte* bit_mask = nullptr;
  const std::byte* lse_offset = nullptr;
  // Partials of the job travelled in bf16: docs/reference/numerics.md allows it more.
  bool bf16_partials = false;
};

struct VerifyReport {
  std::vector<int64_t> rows;  // Packed query rows that were recomputed.
  int32_t worst_head = 0;     // The one nearest to its budget, or farthest above it.
  double output_error = 0;    // Its largest difference from fp64.
  double output_budget = 0;   // What docs/reference/numerics.md allows it.
  double lse_part =
      0;  // Largest difference of an LSE, or max_logit, from fp64, over what is allowed.
  bool within() const { return output_error <= output_budget && lse_part <= 1; }
};

// Recomputes `count` query rows (all, when there are fewer) in fp64, every head, by three loops
// that share nothing with the service but the rule of the mask; the rows are picked by `seed`. The
// budget is the one of docs/reference/numerics.md (attention/numerics/error_budget.h), head by head
// over the recomputed rows; where those are few, the naive error is the largest over up to 32
// orders of the keys. Takes all CPUs of this thread, and memory that does not grow with the keys;
// no number depends on how many CPUs there are. UNIMPLEMENTED / NOT_SERVED for gradients.
absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_VERIFY_H_
