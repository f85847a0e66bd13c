#ifndef ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_
#define ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Whether the LSE that a job of gradients was given can be the natural logarithm of its other
// inputs, as far as a few rows show: for files that do not say the base. At most 16 rows of a head
// each, the same ones for the same job, those with the fewest keys first, and no further one where
// that would be more than 2^26 products; one row with keys is always looked at. An LSE passes that
// is off by 1/32 of max(1, |LSE|): so much is no other arithmetic's error, and base 2 is 44 % off.
// `tensors`: all inputs of TensorTable(spec), packed. INVALID_ARGUMENT / LSE_MISMATCH, as
// CheckLseOfRows.
absl::Status CheckLseOfFew(const AttentionSpec& spec,
                           const std::map<TensorId, const std::byte*>& tensors);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_LSE_PROBE_H_
