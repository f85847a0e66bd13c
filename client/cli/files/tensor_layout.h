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

// The orders in which frameworks store tensors of rows and heads, and copies between them and the
// packed rows of a job, [rows, heads, dim]. Pure functions.

// The dimensions from the outermost to the innermost: B sequences of S tokens, T tokens of all
// sequences (one after the other), H heads, D numbers.
enum class TensorLayout {
  kThd,   // [tokens, heads, dim], as in jobs.
  kHnd,   // [heads, tokens, dim].
  kBshd,  // [batch, tokens, heads, dim], as in jobs.
  kBhsd,  // [batch, heads, tokens, dim], as in PyTorch's SDPA.
  kSbhd,  // [tokens, batch, heads, dim].
};

// "thd", "hnd", "bshd", "bhsd", "sbhd".
absl::string_view TensorLayoutName(TensorLayout layout);
// The names of all layouts.
std::vector<std::string> TensorLayoutNames();
// The layout with this name, in upper or lower case. INVALID_ARGUMENT / UNKNOWN_LAYOUT, with the
// known names.
absl::StatusOr<TensorLayout> TensorLayoutNamed(absl::string_view name);
// True if the layout has a batch dimension.
bool HasBatch(TensorLayout layout);
// True if a tensor without gaps is already packed rows.
inline bool IsPacked(TensorLayout layout) {
  return layout == TensorLayout::kThd || layout == TensorLayout::kBshd;
}

// The extents of a tensor, in any order.
struct RowExtents {
  int64_t batch = 1;   // 1 if the layout has none.
  int64_t tokens = 0;  // Per sequence if there is a batch, else in all.
  int64_t heads = 0, dim = 0;

  int64_t rows() const { return batch * tokens; }
};
// Converts between a shape in the layout's order and extents. `shape` must have the layout's number
// of dimensions.
RowExtents ExtentsOf(TensorLayout layout, absl::Span<const int64_t> shape);
std::vector<int64_t> ShapeIn(TensorLayout layout, const RowExtents& extents);
// For messages: "[batch, heads, tokens, dim]".
std::string DimensionNames(TensorLayout layout);

// A tensor in the caller's memory.
struct CallerTensor {
  TensorLayout layout = TensorLayout::kBshd;
  int64_t element_bytes = 0;
  std::vector<int64_t> shape;  // In the layout's order.
  // In elements, by dimension, not negative. Empty: row-major without gaps. A stride of 0 repeats
  // one element, for reading only.
  std::vector<int64_t> strides;
};

// The bytes of the packed rows. INVALID_ARGUMENT with the field: SHAPE_MISMATCH ("tensor.shape",
// "tensor.strides", "tensor.element_bytes"), DIM_OVERFLOW ("tensor.shape", "tensor.strides").
absl::StatusOr<int64_t> PackedBytes(const CallerTensor& tensor);

// Copies the tensor, which begins at data[0], to packed rows, one sequence after the other. Errors:
// those of PackedBytes(), then TENSOR_BYTES_MISMATCH ("tensor.bytes": the tensor ends after the
// data; "rows").
absl::Status PackRows(const CallerTensor& tensor, absl::Span<const std::byte> data,
                      absl::Span<std::byte> rows);

// The inverse of PackRows(). Gaps are not written. Errors: those of PackRows(), and SHAPE_MISMATCH
// ("tensor.strides") if two elements may share a place.
absl::Status UnpackRows(const CallerTensor& tensor, absl::Span<const std::byte> rows,
                        absl::Span<std::byte> data);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_TENSOR_LAYOUT_H_
