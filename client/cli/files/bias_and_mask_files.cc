#include "client/cli/files/bias_and_mask_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/input_names.h"

namespace annulus {
namespace {

// Rounds to fp32 by round-to-odd, so that a second rounding to 16 bits gives the same result as a
// single rounding.
float ToOdd(double value) {
  float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || nearest == value) return nearest;
  if (std::abs(static_cast<double>(nearest)) > std::abs(value))
    nearest = std::nextafter(nearest, 0.0f);
  uint32_t bits = 0;
  std::memcpy(&bits, &nearest, sizeof(bits));
  bits |= 1;
  std::memcpy(&nearest, &bits, sizeof(bits));
  return nearest;
}

// The dtype that `info` has as this tensor; kUnspecified if its type is not supported.
DataType TypeOf(const SafetensorInfo& info, TensorId id) {
  if (id == TensorId::kBitMask) {
    return info.dtype == "BOOL" || info.dtype == "U8" ? DataType::kBits8 : DataType::kUnspecified;
  }
  return DataTypeOf(info);
}

absl::Status WrongType(const SafetensorInfo& info, TensorId id) {
  const absl::string_view served = id == TensorId::kBitMask ? "BOOL or U8" : "F32, F16 or BF16";
  return InvalidField("UNSUPPORTED_DTYPE", info.name,
                      absl::StrCat("is ", info.dtype, ", but must be ", served));
}

// The extent of the `place`-th dimension from the last, the heads; 1 if there is none.
int32_t HeadsOf(const SafetensorInfo& info, size_t place) {
  if (info.shape.size() < place) return 1;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::min(info.shape[info.shape.size() - place], kMost));
}

// Distances in elements between neighbours along each axis of a file's tensor; 0 along an axis of
// extent 1.
struct Strides {
  int64_t batch = 0, head = 0, row = 0;
};

std::vector<int64_t> WholeShape(const TensorInfo& tensor, const PairExtents& extents) {
  std::vector<int64_t> whole = {tensor.heads, extents.q_tokens, extents.keys};
  if (extents.batch) whole.insert(whole.begin(), *extents.batch);
  return whole;
}

// `shape` has all dimensions.
Strides StridesOf(const std::vector<int64_t>& shape, const PairExtents& extents) {
  const size_t head = shape.size() - 3;
  Strides strides;
  strides.row = shape[head + 1] == 1 ? 0 : extents.keys;
  strides.head = shape[head] == 1 ? 0 : shape[head + 1] * extents.keys;
  if (extents.batch && shape[0] != 1) strides.batch = shape[1] * shape[2] * extents.keys;
  return strides;
}

absl::StatusOr<Strides> StridesOf(const SafetensorInfo& info, const TensorInfo& tensor,
                                  const PairExtents& extents) {
  const std::vector<int64_t> whole = WholeShape(tensor, extents);
  std::vector<int64_t> shape = info.shape;
  const size_t given = shape.size();
  if (given < whole.size() && given >= 1) shape.insert(shape.begin(), whole.size() - given, 1);
  bool fits = shape.size() == whole.size() && shape.back() == extents.keys;
  for (size_t i = 0; fits && i + 1 < whole.size(); ++i) {
    fits = shape[i] == whole[i] || shape[i] == 1;
  }
  if (!fits) {
    return InvalidField(
        "SHAPE_MISMATCH", info.name,
        absl::StrCat("has shape [", absl::StrJoin(info.shape, ", "), "], but the job requires [",
                     absl::StrJoin(whole, ", "), "], where each dimension but the last may be 1"));
  }
  return StridesOf(shape, extents);
}

// Copies the keys of one row and head.
void CopyKeys(const TensorInfo& tensor, const std::byte* from, int64_t keys, std::byte* to) {
  if (tensor.id == TensorId::kBitMask) return PackBits(from, keys, to);
  std::memcpy(to, from, static_cast<size_t>(keys * BytesPerElement(tensor.dtype)));
}

// Adds the bit mask for heads that no mask of the first group names. Without a mask they would see
// every key.
void AddMaskOfOtherHeads(const SafetensorsFile& file, v1::AttentionSpec* spec) {
  auto* const masks = spec->mutable_masks();
  if (masks->empty()) return spec->add_masks()->set_bit_mask(true);
  const SafetensorInfo* const q = file.Find("q");
  if (masks->Get(0).query_heads().empty() || q == nullptr) return;
  const int32_t heads = HeadsOf(*q, 2);
  // The validator refuses this number of heads.
  if (heads > Limits().max_heads) return;
  std::set<int32_t> named;
  int end = 0;  // The end of the first group.
  for (; end < masks->size() && !masks->Get(end).query_heads().empty(); ++end) {
    named.insert(masks->Get(end).query_heads().begin(), masks->Get(end).query_heads().end());
  }
  v1::Mask others;
  others.set_bit_mask(true);
  for (int32_t head = 0; head < heads; ++head) {
    if (named.count(head) == 0) others.add_query_heads(head);
  }
  if (others.query_heads().empty()) return;
  *masks->Add() = std::move(others);
  std::rotate(masks->begin() + end, masks->end() - 1, masks->end());
  for (v1::Sequence& sequence : *spec->mutable_sequences()) {
    if (sequence.mask() >= end) sequence.set_mask(sequence.mask() + 1);
  }
}

}  // namespace

absl::string_view PairNameInFile(TensorId id) {
  if (id == TensorId::kBitMask) return "mask";
  return id == TensorId::kBias ? "bias" : "";
}

absl::Status TakeBiasAndMaskInputs(const SafetensorsFile& file, v1::AttentionSpec* spec) {
  if (const SafetensorInfo* info = file.Find("bias")) {
    const DataType dtype = TypeOf(*info, TensorId::kBias);
    if (dtype == DataType::kUnspecified) return WrongType(*info, TensorId::kBias);
    v1::Bias* bias = spec->mutable_modifiers()->mutable_bias();
    if (bias->dtype() == v1::DATA_TYPE_UNSPECIFIED) {
      bias->set_dtype(static_cast<v1::DataType>(dtype));
    }
    if (bias->heads() == 0) bias->set_heads(HeadsOf(*info, 3));
  }
  if (file.Find(TensorName(TensorId::kLseOffset)) != nullptr) {
    spec->mutable_modifiers()->set_lse_offset(true);
  }
  const SafetensorInfo* info = file.Find("mask");
  if (info == nullptr) return absl::OkStatus();
  if (TypeOf(*info, TensorId::kBitMask) == DataType::kUnspecified) {
    return WrongType(*info, TensorId::kBitMask);
  }
  if (spec->bit_mask_heads() == 0) spec->set_bit_mask_heads(HeadsOf(*info, 3));
  const bool asked = std::any_of(spec->masks().begin(), spec->masks().end(),
                                 [](const v1::Mask& mask) { return mask.bit_mask(); });
  if (asked) return absl::OkStatus();
  for (v1::Mask& mask : *spec->mutable_masks()) mask.set_bit_mask(true);
  AddMaskOfOtherHeads(file, spec);
  return absl::OkStatus();
}

absl::Status ReadBiasOrMaskInput(const SafetensorsFile& file, const TensorInfo& tensor,
                                 const PairExtents& extents, std::byte* target) {
  const absl::string_view name = PairNameInFile(tensor.id);
  const SafetensorInfo* info = file.Find(name);
  if (info == nullptr) return MissingTensor(file, name);
  const DataType dtype = TypeOf(*info, tensor.id);
  if (dtype == DataType::kUnspecified) return WrongType(*info, tensor.id);
  if (dtype != tensor.dtype) {
    return InvalidField("UNSUPPORTED_DTYPE", name,
                        absl::StrCat("is ", DataTypeName(dtype), ", but the job requires ",
                                     DataTypeName(tensor.dtype)));
  }
  ASSIGN_OR_RETURN(const Strides strides, StridesOf(*info, tensor, extents));
  const std::byte* const from = file.Bytes(*info).data();
  const int64_t element = BytesPerElement(dtype), head_bytes = tensor.row_bytes() / tensor.heads;
  for (int64_t b = 0; b < extents.batch.value_or(1); ++b) {
    for (int64_t row = 0; row < extents.q_tokens; ++row) {
      for (int64_t head = 0; head < tensor.heads; ++head, target += head_bytes) {
        const int64_t at = b * strides.batch + head * strides.head + row * strides.row;
        CopyKeys(tensor, from + at * element, extents.keys, target);
      }
    }
  }
  return absl::OkStatus();
}

FileTensor BiasGradientForFile(std::vector<int64_t> shape, DataType dtype, const TensorInfo& tensor,
                               const PairExtents& extents, const std::byte* rows) {
  const std::vector<int64_t> whole = WholeShape(tensor, extents);
  if (shape.empty()) shape = whole;
  std::vector<int64_t> padded = shape;
  padded.insert(padded.begin(), whole.size() - padded.size(), 1);
  const Strides strides = StridesOf(padded, extents);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<double> sums(count, 0.0);
  const std::byte* from = rows;
  for (int64_t b = 0; b < extents.batch.value_or(1); ++b) {
    for (int64_t row = 0; row < extents.q_tokens; ++row) {
      for (int64_t head = 0; head < tensor.heads; ++head) {
        double* to = sums.data() + b * strides.batch + head * strides.head + row * strides.row;
        for (int64_t key = 0; key < extents.keys; ++key, from += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, from, sizeof(float));
          to[key] += value;
        }
      }
    }
  }
  std::vector<float> floats(count);
  const bool twice = dtype != DataType::kFp32;
  std::transform(sums.begin(), sums.end(), floats.begin(),
                 [twice](double sum) { return twice ? ToOdd(sum) : static_cast<float>(sum); });
  FileTensor made{std::move(shape), std::vector<std::byte>(count * BytesPerElement(dtype))};
  ConvertFromFp32(dtype, floats.data(), floats.size(), made.bytes.data());
  return made;
}

}  // namespace annulus
