#ifndef ANNULUS_CLIENT_CLI_FILES_TENSOR_LAYOUT_H_
#define ANNULUS_CLIENT_CLI_FILES_TENSOR_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace annulus {

// The orders in which frameworks keep a tensor of rows and heads, and copies between them and the
// packed rows of a job, [rows, heads, dim]. Pure functions.

// What the dimensions are, the last one nearest: B sequences of S tokens, T tokens of all
// sequences, one sequence after the other, H heads, D numbers.
enum class TensorLayout {
  kThd,   // [tokens, heads, dim], as jobs have it.
  kHnd,   // [heads, tokens, dim].
  kBshd,  // [batch, tokens, heads, dim], as jobs have it.
  kBhsd,  // [batch, heads, tokens, dim], as PyTorch's SDPA takes it.
  kSbhd,  // [tokens, batch, heads, dim].
};

// "thd", "hnd", "bshd", "bhsd", "sbhd".
absl::string_view TensorLayoutName(TensorLayout layout);
// All of these.
std::vector<std::string> TensorLayoutNames();
// In upper or lower case. INVALID_ARGUMENT / UNKNOWN_LAYOUT, naming those that there are.
absl::StatusOr<TensorLayout> TensorLayoutNamed(absl::string_view name);
// Whether the layout has a dimension for sequences.
bool HasBatch(TensorLayout layout);
// Whether a tensor without gaps is packed rows as it is.
inline bool IsPacked(TensorLayout layout) {
  return layout == TensorLayout::kThd || layout == TensorLayout::kBshd;
}

// The extents of a tensor, whatever their order.
struct RowExtents {
  int64_t batch = 1;   // 1 where the layout has none.
  int64_t tokens = 0;  // Of one sequence with a batch, else of all.
  int64_t heads = 0, dim = 0;

  int64_t rows() const { return batch * tokens; }
};
// Of a shape in the layout's order, and back. `shape` has as many dimensions as the layout.
RowExtents ExtentsOf(TensorLayout layout, absl::Span<const int64_t> shape);
std::vector<int64_t> ShapeIn(TensorLayout layout, const RowExtents& extents);
// "[batch, heads, tokens, dim]", for messages.
std::string DimensionNames(TensorLayout layout);

// A tensor in a caller's memory.
struct CallerTensor {
  TensorLayout layout = TensorLayout::kBshd;
  int64_t element_bytes = 0;
  std::vector<int64_t> shape;  // In the layout's order.
  // In elements, by dimension, from 0 on; none: row-major, without gaps. 0 is an extent that is one
  // for all, which can be read from only.
  std::vector<int64_t> strides;
};

// The bytes of its packed rows. INVALID_ARGUMENT: SHAPE_MISMATCH with the field at fault
// ("tensor.shape", "tensor.strides", "tensor.element_bytes"); DIM_OVERFLOW ("tensor.shape",
// "tensor.strides").
absl::StatusOr<int64_t> PackedBytes(const CallerTensor& tensor);

// Copies the tensor, which begins at data[0], to rows that are packed as jobs have them: those of a
// sequence after those of the one before. Errors: those of PackedBytes, and TENSOR_BYTES_MISMATCH
// ("tensor.bytes": it ends behind the data; "rows").
absl::Status PackRows(const CallerTensor& tensor, absl::Span<const std::byte> data,
                      absl::Span<std::byte> rows);

// The inverse; gaps stay as they are. Errors: the same, and SHAPE_MISMATCH ("tensor.strides") where
// two elements may lie in one place.
absl::Status UnpackRows(const CallerTensor& tensor, absl::Span<const std::byte> rows,
                        absl::Span<std::byte> data);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_TENSOR_LAYOUT_H_
