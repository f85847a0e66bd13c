#ifndef ANNULUS_CLIENT_TRANSPORT_TENSOR_STRIDES_H_
#define ANNULUS_CLIENT_TRANSPORT_TENSOR_STRIDES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// The places of a tensor's elements in the caller's memory, in bytes. Row r of the job is token
// r % tokens of sequence r / tokens; its element d of head h lies at
//   sequence · (r / tokens) + token · (r % tokens) + head · h + element · d.
// So every order of batch, tokens, heads and dimension has strides: BSHD, BHSD, SBHD, THD, HND. A
// stride of 0 repeats elements, for inputs only. No stride is negative.
struct TensorStrides {
  int64_t tokens = 0;  // Rows of a sequence. 0: all rows are one sequence.
  int64_t sequence = 0, token = 0, head = 0, element = 0;
};

// The number of bytes from the tensor's first element to the end of its last one; `rows`: of the
// whole job. INVALID_ARGUMENT: SHAPE_MISMATCH if `tokens` does not divide `rows`, a stride is
// negative, or (`output`) two elements share a byte; DIM_OVERFLOW. The field is the tensor's name.
absl::StatusOr<int64_t> StridedBytes(const TensorInfo& tensor, int64_t rows,
                                     const TensorStrides& strides, bool output);

// A part of a tensor: rows [row, row + rows) and heads [head, head + heads).
struct TensorPart {
  int64_t row = 0, rows = 0;
  int32_t head = 0, heads = 0;
};

// Copies a part to packed rows, [rows, heads, dim] of the part alone, and back. `base` is the
// tensor's first element.
void PackPart(const TensorInfo& tensor, const TensorStrides& strides, const TensorPart& part,
              const std::byte* base, std::byte* packed);
void UnpackPart(const TensorInfo& tensor, const TensorStrides& strides, const TensorPart& part,
                const std::byte* packed, std::byte* base);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_TENSOR_STRIDES_H_
