#ifndef ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Whether the LSE that a job of gradients was given is that of its other inputs, as far as `count`
// query rows of every head show, those that VerifyGradients recomputes: the weights of a row,
// before dropout, and its sink's add up to 1. Each exponent may be off by twice what an LSE may be.
// Rows whose LSE or scores are out of range are passed over. `tensors`: all inputs of
// TensorTable(spec), packed. INVALID_ARGUMENT / LSE_MISMATCH with row and head: another mask, scale
// or modifier than that of the forward job, or another file's LSE.
absl::Status CheckLseOfRows(const AttentionSpec& spec,
                            const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                            uint64_t seed);

// The same of one row of a head by its exact LSE; `tolerance` times max(1, |lse|) is what it may be
// off.
absl::Status JudgeLse(int64_t row, int32_t head, double lse, double exact, double tolerance);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_
