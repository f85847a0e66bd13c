#ifndef ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_
#define ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Checks on a few rows that the LSE given to a gradients job can be the natural logarithm for its
// other inputs. For files without a note of the base.
// - At most 16 pairs of row and head, the same ones for the same job, those with the fewest keys
//   first.
// - It stops before 2^26 products are exceeded, but checks at least one row with keys.
// - The tolerance is 1/32 of max(1, |LSE|): more than any error of arithmetic; base 2 is off by 44
//   %.
//
// `tensors`: all inputs of TensorTable(spec), packed. INVALID_ARGUMENT / LSE_MISMATCH, as
// CheckLseOfRows().
absl::Status CheckLseOfFew(const AttentionSpec& spec,
                           const std::map<TensorId, const std::byte*>& tensors);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_
