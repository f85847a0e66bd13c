#include "client/job_shape.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/error.h"
#include "attention/status_macros.h"
#include "client/input_names.h"

namespace annulus {
namespace {

std::string Text(const SafetensorInfo& info) {
  return absl::StrCat(info.name, " [", absl::StrJoin(info.shape, ", "), "]");
}

absl::Status Mismatch(const SafetensorInfo& info, const SafetensorInfo& other,
                      absl::string_view what) {
  return InvalidField("SHAPE_MISMATCH", info.name,
                      absl::StrCat(what, ": ", Text(info), ", ", Text(other)));
}

absl::Status CheckShapes(const SafetensorInfo& q, const SafetensorInfo& k,
                         const SafetensorInfo& v) {
  if (q.shape.size() != 3 && q.shape.size() != 4) {
    return InvalidField("SHAPE_MISMATCH", "q",
                        absl::StrCat("[", absl::StrJoin(q.shape, ", "), "] where [tokens, heads, ",
                                     "dim] or [batch, tokens, heads, dim] is needed"));
  }
  for (const SafetensorInfo* each : {&k, &v}) {
    if (each->shape.size() != q.shape.size()) return Mismatch(*each, q, "of other dimensions");
    const bool batch = q.shape.size() == 4;
    if (batch && each->shape[0] != q.shape[0]) return Mismatch(*each, q, "another batch");
  }
  const size_t at = q.shape.size() - 3;  // Of tokens.
  if (k.shape[at + 2] != q.shape[at + 2]) return Mismatch(k, q, "another head dimension");
  if (v.shape[at] != k.shape[at]) return Mismatch(v, k, "another number of tokens");
  if (v.shape[at + 1] != k.shape[at + 1]) return Mismatch(v, k, "another number of heads");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataType> DtypeInFile(const SafetensorInfo& info) {
  if (info.dtype == "F32") return DataType::kFp32;
  if (info.dtype == "F16") return DataType::kFp16;
  if (info.dtype == "BF16") return DataType::kBf16;
  return InvalidField("UNSUPPORTED_DTYPE", info.name,
                      absl::StrCat(info.dtype, "; F32, F16 and BF16 are served"));
}

absl::StatusOr<JobShape> ShapeOf(const SafetensorsFile& file) {
  const SafetensorInfo* tensors[3] = {};
  constexpr absl::string_view kNames[] = {"q", "k", "v"};
  for (int i : {0, 1, 2}) {
    tensors[i] = file.Find(kNames[i]);
    if (tensors[i] == nullptr) return MissingTensor(file, kNames[i]);
  }
  const SafetensorInfo &q = *tensors[0], &k = *tensors[1], &v = *tensors[2];
  RETURN_IF_ERROR(CheckShapes(q, k, v));
  JobShape shape;
  ASSIGN_OR_RETURN(shape.dtype, DtypeInFile(q));
  for (const SafetensorInfo* each : {&k, &v}) {
    ASSIGN_OR_RETURN(const DataType dtype, DtypeInFile(*each));
    if (dtype == shape.dtype) continue;
    return InvalidField("UNSUPPORTED_DTYPE", each->name,
                        absl::StrCat(each->name, " is ", each->dtype, ", q is ", q.dtype));
  }
  const size_t at = q.shape.size() - 3;
  if (at == 1) shape.batch = q.shape[0];
  shape.q_tokens = q.shape[at];
  shape.kv_tokens = k.shape[at];
  shape.q_heads = q.shape[at + 1];
  shape.kv_heads = k.shape[at + 1];
  shape.head_dim = q.shape[at + 2];
  shape.head_dim_v = v.shape[at + 2];
  return shape;
}

}  // namespace annulus
