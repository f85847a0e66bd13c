#ifndef ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_
#define ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Whether the output that a job of gradients was given is that of its other inputs, as far as
// `count` query rows of every head show, those that VerifyGradients recomputes: within what
// docs/reference/numerics.md allows a forward job (of fp32, one that multiplied as bf16x3; with
// `bf16_partials` one whose partials travelled in bf16). Gradients rest on it: delta is d_out ·
// output. `tensors`: all inputs of TensorTable(spec), packed. INVALID_ARGUMENT / OUTPUT_MISMATCH
// with the head that is farthest off: another dropout than that of the forward job, or another
// file's output.
absl::Status CheckOutputOfRows(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, bool bf16_partials);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_OUTPUT_ROWS_H_
