#include "client/transport/tensor_strides.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {
namespace {

// Sums of a few products of valid sizes stay below it.
constexpr int64_t kMostBytes = int64_t{1} << 60;

int64_t ElementBytes(const TensorInfo& tensor) {
  return tensor.row_bytes() / (int64_t{tensor.heads} * tensor.dim);
}

absl::Status Mismatch(const TensorInfo& tensor, absl::string_view what) {
  return InvalidField("SHAPE_MISMATCH", absl::StrCat(TensorName(tensor.id), ".strides"), what);
}

// Runs `copy(place, offset, bytes)` for each run of elements that lie side by side: the place in
// the caller's memory and the offset in packed rows. Heads are the outer loop, because the rows of
// a head are often neighbours in the caller's memory, and a part in packed rows fits a cache.
template <typename Copy>
void ForEachRun(const TensorInfo& tensor, const TensorStrides& strides, const TensorPart& part,
                Copy copy) {
  const int64_t element = ElementBytes(tensor), head_bytes = element * tensor.dim;
  const bool whole_heads = strides.element == element || tensor.dim == 1;
  const int64_t row_bytes = head_bytes * part.heads;
  for (int32_t h = 0; h < part.heads; ++h) {
    const int64_t head_place = strides.head * (part.head + h);
    for (int64_t i = 0; i < part.rows; ++i) {
      const int64_t row = part.row + i;
      const int64_t sequence = strides.tokens == 0 ? 0 : row / strides.tokens;
      const int64_t token = strides.tokens == 0 ? row : row % strides.tokens;
      const int64_t place = head_place + strides.sequence * sequence + strides.token * token;
      const int64_t offset = row_bytes * i + head_bytes * h;
      if (whole_heads) {
        copy(place, offset, head_bytes);
        continue;
      }
      for (int32_t d = 0; d < tensor.dim; ++d) {
        copy(place + strides.element * d, offset + element * d, element);
      }
    }
  }
}

}  // namespace

absl::StatusOr<int64_t> StridedBytes(const TensorInfo& tensor, int64_t rows,
                                     const TensorStrides& strides, bool output) {
  if (strides.tokens < 0 || (strides.tokens > 0 && rows % strides.tokens != 0)) {
    return Mismatch(tensor, absl::StrCat(strides.tokens, " tokens of a sequence do not divide ",
                                         rows, " rows"));
  }
  const int64_t tokens = strides.tokens == 0 ? rows : strides.tokens;
  const int64_t sequences = tokens == 0 ? 0 : rows / tokens;
  // Extent and stride of each dimension.
  std::array<std::pair<int64_t, int64_t>, 4> dims = {{{strides.sequence, sequences},
                                                      {strides.token, tokens},
                                                      {strides.head, tensor.heads},
                                                      {strides.element, tensor.dim}}};
  if (rows == 0 || tensor.heads == 0 || tensor.dim == 0) return 0;
  std::sort(dims.begin(), dims.end());
  int64_t bytes = ElementBytes(tensor);
  for (const auto& [stride, extent] : dims) {
    if (stride < 0) return Mismatch(tensor, absl::StrCat("a stride is ", stride));
    if (extent == 1) continue;
    if (output && stride < bytes) {
      return Mismatch(tensor, "two elements of an output share a place");
    }
    if (stride > kMostBytes / extent) {
      return InvalidField("DIM_OVERFLOW", absl::StrCat(TensorName(tensor.id), ".strides"),
                          absl::StrCat("a stride of ", stride, " over ", extent, " elements"));
    }
    bytes += stride * (extent - 1);
  }
  return bytes;
}

void PackPart(const TensorInfo& tensor, const TensorStrides& strides, const TensorPart& part,
              const std::byte* base, std::byte* packed) {
  ForEachRun(tensor, strides, part, [&](int64_t place, int64_t offset, int64_t bytes) {
    std::memcpy(packed + offset, base + place, bytes);
  });
}

void UnpackPart(const TensorInfo& tensor, const TensorStrides& strides, const TensorPart& part,
                const std::byte* packed, std::byte* base) {
  ForEachRun(tensor, strides, part, [&](int64_t place, int64_t offset, int64_t bytes) {
    std::memcpy(base + place, packed + offset, bytes);
  });
}

}  // namespace annulus
