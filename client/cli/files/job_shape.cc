#include "client/cli/files/job_shape.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/input_names.h"

namespace annulus {
namespace {

std::string Text(const SafetensorInfo& info) {
  return absl::StrCat(info.name, " [", absl::StrJoin(info.shape, ", "), "]");
}

absl::Status Mismatch(const SafetensorInfo& info, const SafetensorInfo& other,
                      absl::string_view what) {
  return InvalidField("SHAPE_MISMATCH", info.name,
                      absl::StrCat("has another ", what, " than ", other.name, ": ", Text(info),
                                   ", ", Text(other)));
}

// The layout of q. k and v must have the same number of dimensions.
absl::StatusOr<TensorLayout> LayoutOf(const SafetensorInfo& q, std::optional<TensorLayout> wanted) {
  const size_t dimensions = q.shape.size();
  const bool is_usual = dimensions == 3 || dimensions == 4;
  if (wanted.has_value() ? dimensions == (HasBatch(*wanted) ? 4 : 3) : is_usual) {
    return wanted.value_or(UsualLayout(dimensions));
  }
  const std::string needed = wanted.has_value()
                                 ? DimensionNames(*wanted)
                                 : absl::StrCat(DimensionNames(TensorLayout::kThd), " or ",
                                                DimensionNames(TensorLayout::kBshd));
  return InvalidField(
      "SHAPE_MISMATCH", "q",
      absl::StrCat("has shape [", absl::StrJoin(q.shape, ", "), "], but must be ", needed));
}

absl::Status CheckShapes(TensorLayout layout, const SafetensorInfo& q, const SafetensorInfo& k,
                         const SafetensorInfo& v) {
  const RowExtents of_q = ExtentsOf(layout, q.shape);
  for (const SafetensorInfo* each : {&k, &v}) {
    if (each->shape.size() != q.shape.size()) return Mismatch(*each, q, "number of dimensions");
    if (ExtentsOf(layout, each->shape).batch != of_q.batch) {
      return Mismatch(*each, q, "batch size");
    }
  }
  const RowExtents of_k = ExtentsOf(layout, k.shape), of_v = ExtentsOf(layout, v.shape);
  if (of_k.dim != of_q.dim) return Mismatch(k, q, "head dimension");
  if (of_v.tokens != of_k.tokens) return Mismatch(v, k, "number of tokens");
  if (of_v.heads != of_k.heads) return Mismatch(v, k, "number of heads");
  return absl::OkStatus();
}

}  // namespace

TensorLayout UsualLayout(size_t dimensions) {
  return dimensions == 4 ? TensorLayout::kBshd : TensorLayout::kThd;
}

absl::StatusOr<DataType> DtypeInFile(const SafetensorInfo& info) {
  const DataType dtype = DataTypeOf(info);
  if (dtype != DataType::kUnspecified) return dtype;
  return InvalidField("UNSUPPORTED_DTYPE", info.name,
                      absl::StrCat("is ", info.dtype, ", but must be F32, F16 or BF16"));
}

absl::StatusOr<JobShape> ShapeOf(const SafetensorsFile& file, std::optional<TensorLayout> layout) {
  const SafetensorInfo* tensors[3] = {};
  constexpr absl::string_view kNames[] = {"q", "k", "v"};
  for (int i : {0, 1, 2}) {
    tensors[i] = file.Find(kNames[i]);
    if (tensors[i] == nullptr) return MissingTensor(file, kNames[i]);
  }
  const SafetensorInfo &q = *tensors[0], &k = *tensors[1], &v = *tensors[2];
  JobShape shape;
  ASSIGN_OR_RETURN(shape.layout, LayoutOf(q, layout));
  RETURN_IF_ERROR(CheckShapes(shape.layout, q, k, v));
  ASSIGN_OR_RETURN(shape.dtype, DtypeInFile(q));
  for (const SafetensorInfo* each : {&k, &v}) {
    ASSIGN_OR_RETURN(const DataType dtype, DtypeInFile(*each));
    if (dtype == shape.dtype) continue;
    return InvalidField("UNSUPPORTED_DTYPE", each->name,
                        absl::StrCat("is ", each->dtype, ", but q is ", q.dtype));
  }
  const RowExtents of_q = ExtentsOf(shape.layout, q.shape), of_v = ExtentsOf(shape.layout, v.shape);
  if (HasBatch(shape.layout)) shape.batch = of_q.batch;
  shape.q_tokens = of_q.tokens;
  shape.kv_tokens = of_v.tokens;
  shape.q_heads = of_q.heads;
  shape.kv_heads = of_v.heads;
  shape.head_dim = of_q.dim;
  shape.head_dim_v = of_v.dim;
  return shape;
}

}  // namespace annulus
