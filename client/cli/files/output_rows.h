#ifndef ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_
#define ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Checks that the `output` given to a gradients job belongs to its other inputs: recomputes `count`
// query rows of every head (those of VerifyGradients()) and compares them within the error budget
// of a forward job (docs/reference/numerics.md). The check matters because delta is d_out · output.
// - `tensors`: all inputs of TensorTable(spec), packed.
// - The budget allows for bf16x3 multiplication if the job is fp32, and for bf16 partials if
//   `bf16_partials` is true.
//
// INVALID_ARGUMENT / OUTPUT_MISMATCH with the worst head: the forward job had another dropout, or
// the output is from another file.
// file's output.
absl::Status CheckOutputOfRows(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, bool bf16_partials);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_
