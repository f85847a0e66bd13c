#ifndef ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Checks that the LSE given to a gradients job belongs to its other inputs, on `count` query rows
// of every head (those of VerifyGradients()): the weights of a row before dropout, with its sink's,
// must sum to 1. The tolerance of the exponent is twice that of an LSE. Rows whose LSE or scores
// are out of range are skipped. `tensors`: all inputs of TensorTable(spec), packed.
// INVALID_ARGUMENT / LSE_MISMATCH with row and head: the forward job had another mask, scale or
// modifier, or the LSE is from another file.
absl::Status CheckLseOfRows(const AttentionSpec& spec,
                            const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                            uint64_t seed);

// The check of one row and head, from its exact LSE. The LSE may differ by `tolerance` · max(1,
// |lse|).
absl::Status JudgeLse(int64_t row, int32_t head, double lse, double exact, double tolerance);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_LSE_ROWS_H_
