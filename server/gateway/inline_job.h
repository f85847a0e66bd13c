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

// The tensors of an AttendInline call: pure translation between typed numbers or a seed, and bytes.

// Limits of the unary form; a larger job belongs on Attend.
inline constexpr int64_t kMaxInlineElements = 65536;            // Of one typed tensor.
inline constexpr int64_t kMaxInlineBytes = int64_t{256} << 20;  // Of all tensors of a call.
// Of all outputs of typed numbers: any gRPC client receives as many.
inline constexpr int64_t kMaxInlineAnswerElements = 786432;

// Bytes of all tensors of the call, and of the request. LIMIT_EXCEEDED where the tensors go past
// kMaxInlineBytes or the answer past kMaxInlineAnswerElements, MISSING_TENSOR without inputs, so
// that nothing is allocated for a call that cannot be served.
absl::StatusOr<int64_t> InlineBytes(const v1::AttendInlineRequest& request,
                                    const AttentionSpec& spec);

// Bytes of every tensor of TensorTable(spec), in its order: inputs filled, outputs zero. `spec` is
// valid. InlineBytes has said yes. INVALID_ARGUMENT: SHAPE_MISMATCH and TENSOR_BYTES_MISMATCH (path
// "tensors.q" …), LIMIT_EXCEEDED, UNKNOWN_FIELD, UNKNOWN_TENSOR (a bias or bit mask that the spec
// does not ask for), INVALID_MASK (a bit that is neither 0 nor 1).
absl::StatusOr<std::vector<std::vector<std::byte>>> InlineTensorBytes(
    const v1::AttendInlineRequest& request, const AttentionSpec& spec);

// Fills out, lse (for typed numbers) and their digests from finished tensors, ordered as
// TensorTable(spec).
void FillInlineResponse(const v1::AttendInlineRequest& request, const AttentionSpec& spec,
                        const std::vector<std::vector<std::byte>>& tensors,
                        v1::AttendInlineResponse* response);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_INLINE_JOB_H_
