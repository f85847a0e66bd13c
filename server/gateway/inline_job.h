#ifndef ANNULUS_SERVER_GATEWAY_INLINE_JOB_H_
#define ANNULUS_SERVER_GATEWAY_INLINE_JOB_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/attention.pb.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// The tensors of an AttendInline call: pure conversion between typed numbers or a seed, and bytes.

// Limits of AttendInline; larger jobs use Attend.
inline constexpr int64_t kMaxInlineElements = 65536;            // Numbers of one typed tensor.
inline constexpr int64_t kMaxInlineBytes = int64_t{256} << 20;  // Bytes of all tensors of a call.
// Numbers of all outputs of a call with typed numbers; any gRPC client can receive that many.
inline constexpr int64_t kMaxInlineAnswerElements = 786432;

// The number of bytes of all tensors of the call and of the request. It allocates nothing, so that
// a call that cannot be served costs no memory. Errors, in the order of checks:
// - UNIMPLEMENTED / NOT_SERVED for gradients;
// - INVALID_ARGUMENT / MISSING_TENSOR without inputs;
// - INVALID_ARGUMENT / LIMIT_EXCEEDED above kMaxInlineBytes or kMaxInlineAnswerElements.
absl::StatusOr<int64_t> InlineBytes(const v1::AttendInlineRequest& request,
                                    const AttentionSpec& spec);

// Bytes of every tensor of TensorTable(spec), in its order: inputs filled, outputs zero. Requires a
// valid `spec`, and InlineBytes without an error. INVALID_ARGUMENT, in the order of checks (paths
// "tensors.q" …):
// - UNKNOWN_FIELD;
// - UNKNOWN_TENSOR for a bias, LSE offset or bit mask that the spec does not ask for;
// - for each tensor: UNKNOWN_FIELD, SHAPE_MISMATCH, LIMIT_EXCEEDED, TENSOR_BYTES_MISMATCH,
//   INVALID_MASK (a bit that is neither 0 nor 1), INVALID_MODIFIER (a finite bias that its type
//   cannot hold).
absl::StatusOr<std::vector<std::vector<std::byte>>> InlineTensorBytes(
    const v1::AttendInlineRequest& request, const AttentionSpec& spec);

// Fills in output, LSE (for typed numbers) and their digests from finished tensors in the order of
// TensorTable(spec).
void FillInlineResponse(const v1::AttendInlineRequest& request, const AttentionSpec& spec,
                        const std::vector<std::vector<std::byte>>& tensors,
                        v1::AttendInlineResponse* response);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_INLINE_JOB_H_
