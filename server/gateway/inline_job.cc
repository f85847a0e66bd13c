#include "server/gateway/inline_job.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/numerics/synthetic.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/dtype.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

using Bytes = std::vector<std::byte>;

int64_t ElementsOf(const AttentionSpec& spec, const TensorInfo& info) {
  return RowsOf(info, spec) * info.heads * info.dim;
}

const v1::InlineTensor& TensorOf(const v1::InlineTensors& tensors, TensorId id) {
  switch (id) {
    case TensorId::kQ:
      return tensors.q();
    case TensorId::kK:
      return tensors.k();
    case TensorId::kV:
      return tensors.v();
    case TensorId::kLseOffset:
      return tensors.lse_offset();
    default:
      return id == TensorId::kBias ? tensors.bias() : tensors.bit_mask();
  }
}

// [rows, heads, dim] of a typed tensor; a bit mask has one number for each key.
std::vector<int64_t> TypedShape(const AttentionSpec& spec, const TensorInfo& info) {
  const int64_t dim = info.id == TensorId::kBitMask ? BiasAndMaskInputs(spec).width : info.dim;
  return {RowsOf(info, spec), info.heads, dim};
}

absl::Status FillBits(const v1::InlineTensor& tensor, const std::string& path, int64_t keys,
                      Bytes* bytes) {
  std::vector<std::byte> visible(static_cast<size_t>(tensor.values_size()));
  for (int i = 0; i < tensor.values_size(); ++i) {
    const float value = tensor.values(i);
    if (value != 0 && value != 1) {
      return InvalidField("INVALID_MASK", absl::StrCat(path, ".values[", i, "]"),
                          absl::StrCat("is ", value, ", but must be 0 or 1"));
    }
    visible[static_cast<size_t>(i)] = std::byte{value == 1};
  }
  std::byte* target = bytes->data();
  for (size_t row = 0; row < visible.size(); row += static_cast<size_t>(keys)) {
    PackBits(visible.data() + row, keys, target);
    target += (keys + 7) / 8;
  }
  return absl::OkStatus();
}

// A tensor that the spec does not ask for would be dropped silently.
absl::Status CheckAsked(const v1::InlineTensors& tensors, const std::vector<TensorInfo>& table) {
  const auto check = [&](bool given, TensorId id) {
    if (!given || FindTensor(table, id) != nullptr) return absl::OkStatus();
    return InvalidField("UNKNOWN_TENSOR", absl::StrCat("tensors.", TensorName(id)),
                        "is not an input of this job");
  };
  RETURN_IF_ERROR(check(tensors.has_bias(), TensorId::kBias));
  RETURN_IF_ERROR(check(tensors.has_lse_offset(), TensorId::kLseOffset));
  return check(tensors.has_bit_mask(), TensorId::kBitMask);
}

// A bias of −inf hides a pair. A finite number that the element type cannot hold must not become
// −inf.
absl::Status CheckStillFinite(const v1::InlineTensor& tensor, const std::string& path,
                              DataType dtype, const Bytes& bytes) {
  const auto count = static_cast<size_t>(tensor.values_size());
  std::vector<float> rounded(count);
  ConvertToFp32(dtype, bytes.data(), count, rounded.data());
  for (size_t i = 0; i < count; ++i) {
    const float value = tensor.values(static_cast<int>(i));
    if (std::isfinite(value) && !std::isfinite(rounded[i])) {
      return InvalidField("INVALID_MODIFIER", path + ".values",
                          absl::StrCat(value, " is outside the range of ", DataTypeName(dtype)));
    }
  }
  return absl::OkStatus();
}

absl::Status FillTyped(const v1::InlineTensor& tensor, const AttentionSpec& spec,
                       const TensorInfo& info, Bytes* bytes) {
  const std::string path = absl::StrCat("tensors.", TensorName(info.id));
  RETURN_IF_ERROR(CheckFieldsKnown(tensor, path));
  const std::vector<int64_t> shape = TypedShape(spec, info);
  if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
    return InvalidField(
        "SHAPE_MISMATCH", path + ".shape",
        absl::StrCat("is [", absl::StrJoin(tensor.shape(), ", "), "], but the spec requires [",
                     absl::StrJoin(shape, ", "), "]"));
  }
  const int64_t elements = shape[0] * shape[1] * shape[2];
  if (elements > kMaxInlineElements) {
    return InvalidField(
        "LIMIT_EXCEEDED", path,
        absl::StrCat(elements, " elements are above the limit of ", kMaxInlineElements));
  }
  if (tensor.values_size() != elements) {
    return InvalidField(
        "TENSOR_BYTES_MISMATCH", path + ".values",
        absl::StrCat("has ", tensor.values_size(), " values, but the shape requires ", elements));
  }
  if (info.id == TensorId::kBitMask) return FillBits(tensor, path, shape[2], bytes);
  ConvertFromFp32(info.dtype, tensor.values().data(), static_cast<size_t>(elements), bytes->data());
  return info.id == TensorId::kBias ? CheckStillFinite(tensor, path, info.dtype, *bytes)
                                    : absl::OkStatus();
}

void FillTensor(const AttentionSpec& spec, const TensorInfo& info, const Bytes& bytes,
                v1::InlineTensor* tensor) {
  for (const int64_t extent : {RowsOf(info, spec), int64_t{info.heads}, int64_t{info.dim}}) {
    tensor->add_shape(extent);
  }
  const int64_t elements = ElementsOf(spec, info);
  tensor->mutable_values()->Resize(static_cast<int>(elements), 0);
  ConvertToFp32(info.dtype, bytes.data(), static_cast<size_t>(elements),
                tensor->mutable_values()->mutable_data());
}

// The response's fields of one output.
struct OutputFields {
  TensorId id;
  v1::InlineTensor* (v1::AttendInlineResponse::*tensor)();
  void (v1::AttendInlineResponse::*set_crc)(uint32_t);
};
using Response = v1::AttendInlineResponse;
constexpr OutputFields kOutputs[] = {
    {TensorId::kOut, &Response::mutable_out, &Response::set_out_crc32c},
    {TensorId::kLse, &Response::mutable_lse, &Response::set_lse_crc32c},
    {TensorId::kLseRest, &Response::mutable_lse_rest, &Response::set_lse_rest_crc32c},
    {TensorId::kMaxLogit, &Response::mutable_max_logit, &Response::set_max_logit_crc32c},
};

// Null for a tensor that the response has no fields for.
const OutputFields* FieldsOfOutput(TensorId id) {
  const auto* const found = std::find_if(std::begin(kOutputs), std::end(kOutputs),
                                         [&](const OutputFields& of) { return of.id == id; });
  return found == std::end(kOutputs) ? nullptr : found;
}

}  // namespace

absl::StatusOr<int64_t> InlineBytes(const v1::AttendInlineRequest& request,
                                    const AttentionSpec& spec) {
  if (spec.operation != Operation::kForward) {
    return MakeError(absl::StatusCode::kUnimplemented,
                     "spec.gradients: AttendInline computes the forward pass only; use Attend",
                     {"NOT_SERVED",
                      {},
                      {{"spec.gradients", "AttendInline computes the forward pass only"}},
                      {}});
  }
  if (request.inputs_case() == v1::AttendInlineRequest::INPUTS_NOT_SET) {
    return InvalidField("MISSING_TENSOR", "tensors", "either tensors or a seed must be set");
  }
  int64_t bytes = 0, answer = 0;
  for (const TensorInfo& info : TensorTable(spec)) {
    // Validated sizes are far from overflow one by one. Their sum is checked at each step.
    bytes += RowsOf(info, spec) * info.row_bytes();
    if (bytes > kMaxInlineBytes) {
      return InvalidField("LIMIT_EXCEEDED", "spec.sequences",
                          absl::StrCat("the tensors of an inline call take more than ",
                                       kMaxInlineBytes, " bytes; use Attend"));
    }
    if (info.direction != Direction::kOutput) continue;
    if (FieldsOfOutput(info.id) == nullptr) {
      return absl::InternalError(
          absl::StrCat("AttendInline has no fields for the output ", TensorName(info.id)));
    }
    answer += ElementsOf(spec, info);
  }
  if (request.has_tensors() && answer > kMaxInlineAnswerElements) {
    return InvalidField(
        "LIMIT_EXCEEDED", "spec.sequences",
        absl::StrCat("an inline answer of ", answer, " numbers is above the limit of ",
                     kMaxInlineAnswerElements, "; use Attend"));
  }
  return bytes + static_cast<int64_t>(request.SpaceUsedLong());
}

absl::StatusOr<std::vector<Bytes>> InlineTensorBytes(const v1::AttendInlineRequest& request,
                                                     const AttentionSpec& spec) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  std::vector<Bytes> tensors;
  RETURN_IF_ERROR(CheckFieldsKnown(request.synthetic(), "synthetic"));
  RETURN_IF_ERROR(CheckFieldsKnown(request.tensors(), "tensors"));
  RETURN_IF_ERROR(CheckAsked(request.tensors(), table));
  for (const TensorInfo& info : table) {
    tensors.emplace_back(static_cast<size_t>(RowsOf(info, spec) * info.row_bytes()));
    if (info.direction != Direction::kInput) continue;
    if (request.has_synthetic()) {
      FillSyntheticRows(request.synthetic().seed(), info, {0, RowsOf(info, spec)},
                        tensors.back().data());
    } else {
      RETURN_IF_ERROR(FillTyped(TensorOf(request.tensors(), info.id), spec, info, &tensors.back()));
    }
  }
  return tensors;
}

void FillInlineResponse(const v1::AttendInlineRequest& request, const AttentionSpec& spec,
                        const std::vector<Bytes>& tensors, v1::AttendInlineResponse* response) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].direction != Direction::kOutput) continue;
    const OutputFields* const fields = FieldsOfOutput(table[i].id);
    if (fields == nullptr) continue;  // InlineBytes has refused such a request.
    (response->*fields->set_crc)(Crc32c(tensors[i].data(), tensors[i].size()));
    if (request.has_synthetic()) continue;
    FillTensor(spec, table[i], tensors[i], (response->*fields->tensor)());
  }
}

}  // namespace annulus
