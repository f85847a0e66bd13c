#include "client/cli/files/tensor_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// The position of each dimension in a layout; batch -1: none.
struct Order {
  TensorLayout layout;
  absl::string_view name;
  int batch, tokens, heads, dim;

  size_t size() const { return batch < 0 ? 3 : 4; }
};
constexpr Order kOrders[] = {
    {TensorLayout::kThd, "thd", -1, 0, 1, 2},  {TensorLayout::kHnd, "hnd", -1, 1, 0, 2},
    {TensorLayout::kBshd, "bshd", 0, 1, 2, 3}, {TensorLayout::kBhsd, "bhsd", 0, 2, 1, 3},
    {TensorLayout::kSbhd, "sbhd", 1, 0, 2, 3},
};

const Order& OrderOf(TensorLayout layout) { return kOrders[static_cast<size_t>(layout)]; }

// A checked tensor. Strides are in bytes.
struct Places {
  RowExtents extents;
  int64_t batch = 0, token = 0, head = 0, element = 0;
  int64_t element_bytes = 0;
  int64_t packed_bytes = 0;  // The bytes of all rows.
  int64_t end = 0;           // The offset after the last byte; 0 for an empty tensor.
  bool disjoint = true;      // True if no two elements share a place.
};

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return InvalidField("SHAPE_MISMATCH", absl::StrCat("tensor.", field), what);
}

absl::Status Overflow(absl::string_view field) {
  return InvalidField("DIM_OVERFLOW", absl::StrCat("tensor.", field),
                      "takes more than 2^63 - 1 bytes");
}

// The strides of a row-major tensor without gaps.
std::vector<int64_t> StridesOf(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; --i) {
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

// True if each stride is larger than the reach of all smaller ones. For ordinary views this is
// equivalent to: no two elements share a place.
bool AreDisjoint(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  std::vector<size_t> by_stride(shape.size());
  std::iota(by_stride.begin(), by_stride.end(), size_t{0});
  std::sort(by_stride.begin(), by_stride.end(),
            [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t reach = 0;
  for (const size_t i : by_stride) {
    if (shape[i] <= 1) continue;
    if (strides[i] <= reach) return false;
    reach += (shape[i] - 1) * strides[i];
  }
  return true;
}

// Checks the shape. Zero dimensions must not hide an overflow of the others.
absl::Status CheckExtents(const CallerTensor& tensor) {
  int64_t bytes = tensor.element_bytes;
  if (bytes <= 0) return Bad("element_bytes", "must be more than 0");
  const Order& order = OrderOf(tensor.layout);
  if (tensor.shape.size() != order.size()) {
    return Bad("shape", absl::StrCat("is [", absl::StrJoin(tensor.shape, ", "), "], but must be ",
                                     DimensionNames(tensor.layout)));
  }
  for (const int64_t extent : tensor.shape) {
    if (extent < 0) return Bad("shape", "has a negative dimension");
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) {
      return Overflow("shape");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Places> PlacesOf(const CallerTensor& tensor) {
  RETURN_IF_ERROR(CheckExtents(tensor));
  std::vector<int64_t> strides = tensor.strides.empty() ? StridesOf(tensor.shape) : tensor.strides;
  if (strides.size() != tensor.shape.size())
    return Bad("strides", "must have one value for each dimension");
  Places places;
  places.extents = ExtentsOf(tensor.layout, tensor.shape);
  places.element_bytes = tensor.element_bytes;
  places.packed_bytes =
      places.extents.rows() * places.extents.heads * places.extents.dim * tensor.element_bytes;
  places.end = tensor.element_bytes;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] < 0) return Bad("strides", "has a negative value");
    int64_t reach = 0;
    if (__builtin_mul_overflow(strides[i], tensor.element_bytes, &strides[i]) ||
        __builtin_mul_overflow(strides[i], std::max<int64_t>(tensor.shape[i] - 1, 0), &reach) ||
        __builtin_add_overflow(places.end, reach, &places.end)) {
      return Overflow("strides");
    }
  }
  if (places.packed_bytes == 0) places.end = 0;
  places.disjoint = places.packed_bytes == 0 || AreDisjoint(tensor.shape, strides);
  const Order& order = OrderOf(tensor.layout);
  if (order.batch >= 0) places.batch = strides[order.batch];
  places.token = strides[order.tokens];
  places.head = strides[order.heads];
  places.element = strides[order.dim];
  return places;
}

absl::Status CheckBytes(const Places& places, size_t data, size_t rows) {
  if (static_cast<int64_t>(data) < places.end) {
    return InvalidField(
        "TENSOR_BYTES_MISMATCH", "tensor.bytes",
        absl::StrCat("has ", data, " bytes, but the tensor ends at byte ", places.end));
  }
  if (static_cast<int64_t>(rows) != places.packed_bytes) {
    return InvalidField(
        "TENSOR_BYTES_MISMATCH", "rows",
        absl::StrCat("has ", rows, " bytes, but the tensor has ", places.packed_bytes));
  }
  return absl::OkStatus();
}

// Calls copy(packed, place, bytes) for each run that is contiguous in both, in the order of the
// packed rows. `packed` and `place` are the offsets in the rows and in the tensor.
template <typename Copy>
void ForEachRun(const Places& places, const Copy& copy) {
  if (places.packed_bytes == 0) return;
  const RowExtents& of = places.extents;
  const int64_t head_bytes = of.dim * places.element_bytes;
  const bool together = places.element == places.element_bytes || of.dim == 1;
  const bool whole_rows = together && (places.head == head_bytes || of.heads == 1);
  int64_t packed = 0;
  for (int64_t b = 0; b < of.batch; ++b) {
    for (int64_t t = 0; t < of.tokens; ++t) {
      const int64_t row = b * places.batch + t * places.token;
      if (whole_rows) {
        copy(packed, row, of.heads * head_bytes);
        packed += of.heads * head_bytes;
        continue;
      }
      for (int64_t h = 0; h < of.heads; ++h) {
        const int64_t head = row + h * places.head;
        if (together) {
          copy(packed, head, head_bytes);
        } else {
          for (int64_t d = 0; d < of.dim; ++d) {
            copy(packed + d * places.element_bytes, head + d * places.element,
                 places.element_bytes);
          }
        }
        packed += head_bytes;
      }
    }
  }
}

}  // namespace

absl::string_view TensorLayoutName(TensorLayout layout) { return OrderOf(layout).name; }

std::vector<std::string> TensorLayoutNames() {
  std::vector<std::string> names;
  for (const Order& order : kOrders) names.emplace_back(order.name);
  return names;
}

absl::StatusOr<TensorLayout> TensorLayoutNamed(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const Order& order : kOrders) {
    if (order.name == lower) return order.layout;
  }
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("'", name, "' is not a tensor layout; the layouts are ",
                                absl::StrJoin(TensorLayoutNames(), ", ")),
                   {"UNKNOWN_LAYOUT", {{"layout", std::string(name)}}, {}, {}});
}

bool HasBatch(TensorLayout layout) { return OrderOf(layout).batch >= 0; }

RowExtents ExtentsOf(TensorLayout layout, absl::Span<const int64_t> shape) {
  const Order& order = OrderOf(layout);
  return {order.batch < 0 ? 1 : shape[order.batch], shape[order.tokens], shape[order.heads],
          shape[order.dim]};
}

std::vector<int64_t> ShapeIn(TensorLayout layout, const RowExtents& extents) {
  const Order& order = OrderOf(layout);
  std::vector<int64_t> shape(order.size());
  if (order.batch >= 0) shape[order.batch] = extents.batch;
  shape[order.tokens] = extents.tokens;
  shape[order.heads] = extents.heads;
  shape[order.dim] = extents.dim;
  return shape;
}

std::string DimensionNames(TensorLayout layout) {
  const Order& order = OrderOf(layout);
  std::vector<absl::string_view> names(order.size());
  if (order.batch >= 0) names[order.batch] = "batch";
  names[order.tokens] = "tokens";
  names[order.heads] = "heads";
  names[order.dim] = "dim";
  return absl::StrCat("[", absl::StrJoin(names, ", "), "]");
}

absl::StatusOr<int64_t> PackedBytes(const CallerTensor& tensor) {
  ASSIGN_OR_RETURN(const Places places, PlacesOf(tensor));
  return places.packed_bytes;
}

absl::Status PackRows(const CallerTensor& tensor, absl::Span<const std::byte> data,
                      absl::Span<std::byte> rows) {
  ASSIGN_OR_RETURN(const Places places, PlacesOf(tensor));
  RETURN_IF_ERROR(CheckBytes(places, data.size(), rows.size()));
  ForEachRun(places, [&](int64_t packed, int64_t place, int64_t bytes) {
    std::memcpy(rows.data() + packed, data.data() + place, static_cast<size_t>(bytes));
  });
  return absl::OkStatus();
}

absl::Status UnpackRows(const CallerTensor& tensor, absl::Span<const std::byte> rows,
                        absl::Span<std::byte> data) {
  ASSIGN_OR_RETURN(const Places places, PlacesOf(tensor));
  if (!places.disjoint) return Bad("strides", "give two elements the same place");
  RETURN_IF_ERROR(CheckBytes(places, data.size(), rows.size()));
  ForEachRun(places, [&](int64_t packed, int64_t place, int64_t bytes) {
    std::memcpy(data.data() + place, rows.data() + packed, static_cast<size_t>(bytes));
  });
  return absl::OkStatus();
}

}  // namespace annulus
