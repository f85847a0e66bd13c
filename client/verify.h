#ifndef ANNULUS_CLIENT_VERIFY_H_
#define ANNULUS_CLIENT_VERIFY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/spec.h"

namespace annulus {

// Packed tensors of a finished job, as TensorTable(spec) lists them.
struct VerifyInput {
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* out = nullptr;
  const std::byte* lse = nullptr;
};

struct VerifyReport {
  std::vector<int64_t> rows;  // Packed query rows that were recomputed.
  double output_error = 0;    // Largest difference from fp64.
  double output_budget = 0;   // What docs/numerics.md allows for it.
  double lse_part = 0;        // Largest difference from fp64 over what is allowed.
  bool within() const { return output_error <= output_budget && lse_part <= 1; }
};

// Recomputes `count` query rows (all, when there are fewer) in fp64, every head, by three loops
// that share nothing with the service but the rule of the mask; the rows are picked by `seed`. The
// budget is the one of docs/numerics.md, taken over the recomputed rows of all heads together:
// twice the error of a naive fp32 computation with weights rounded to the input's type, and half a
// unit of the largest answer. UNIMPLEMENTED / NOT_SERVED for score modifiers, dropout, other
// outputs.
absl::StatusOr<VerifyReport> VerifyRows(const AttentionSpec& spec, const VerifyInput& input,
                                        int64_t count, uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_VERIFY_H_
