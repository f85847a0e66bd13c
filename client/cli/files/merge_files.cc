#include "client/cli/files/merge_files.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "attention/numerics/merge_partials.h"
#include "attention/spec/dtype.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/input_names.h"
#include "client/cli/safetensors/file_error.h"

namespace annulus {
namespace {

constexpr char kOut[] = "output", kLse[] = "lse", kRest[] = "lse_rest";

absl::Status CheckTensor(const SafetensorsFile& file, const char* name,
                         const std::vector<int64_t>& shape, bool only_fp32) {
  const SafetensorInfo* info = file.Find(name);
  if (info == nullptr) return MissingTensor(file, name);
  if (info->shape != shape) {
    return InvalidField("SHAPE_MISMATCH", name,
                        absl::StrCat("has shape [", absl::StrJoin(info->shape, ", "),
                                     "], but must have [", absl::StrJoin(shape, ", "), "]"));
  }
  const DataType dtype = DataTypeOf(*info);
  if (dtype == DataType::kUnspecified || (only_fp32 && dtype != DataType::kFp32)) {
    return InvalidField(
        "UNSUPPORTED_DTYPE", name,
        absl::StrCat("is ", info->dtype, ", but must be ", only_fp32 ? "F32" : "F32, F16 or BF16"));
  }
  return absl::OkStatus();
}

// Appends `count` numbers of a tensor, from element `begin` on.
void Append(const SafetensorsFile& file, absl::string_view name, int64_t begin, int64_t count,
            v1::InlineTensor* to) {
  const SafetensorInfo& info = *file.Find(name);
  const DataType dtype = DataTypeOf(info);
  const int size = to->values_size();
  to->mutable_values()->Resize(size + static_cast<int>(count), 0.0f);
  ConvertToFp32(dtype, file.Bytes(info).data() + begin * BytesPerElement(dtype),
                static_cast<size_t>(count), to->mutable_values()->mutable_data() + size);
}

v1::Outputs::LseBase BaseToProto(LseBase base) {
  return base == LseBase::k2 ? v1::Outputs::LSE_BASE_2 : v1::Outputs::LSE_BASE_E;
}

absl::Span<const std::byte> BytesOf(const std::vector<float>& numbers) {
  return {reinterpret_cast<const std::byte*>(numbers.data()), numbers.size() * sizeof(float)};
}

}  // namespace

std::vector<int64_t> MergeFiles::LseShape() const {
  std::vector<int64_t> shape = {heads_, tokens_};
  if (rules_.tokens_heads) shape = {tokens_, heads_};
  if (has_batch_) shape.insert(shape.begin(), batch_);
  return shape;
}

absl::StatusOr<MergeFiles> MergeFiles::Open(std::vector<SafetensorsFile> files,
                                            const PartialFileRules& rules, LseBase answer_base) {
  MergeFiles merge;
  merge.files_ = std::move(files);
  merge.rules_ = rules;
  merge.answer_base_ = answer_base;
  const SafetensorInfo* first = merge.files_[0].Find(kOut);
  if (first == nullptr) return merge.InInput(0, MissingTensor(merge.files_[0], kOut));
  const std::vector<int64_t> shape = first->shape;
  if (shape.size() != 3 && shape.size() != 4) {
    return merge.InInput(
        0, InvalidField(
               "SHAPE_MISMATCH", kOut,
               absl::StrCat("has shape [", absl::StrJoin(shape, ", "),
                            "], but must be [tokens, heads, dim] or [batch, tokens, heads, dim]")));
  }
  merge.has_batch_ = shape.size() == 4;
  if (merge.has_batch_) merge.batch_ = shape[0];
  merge.tokens_ = shape[shape.size() - 3];
  merge.heads_ = shape[shape.size() - 2];
  merge.dim_ = shape[shape.size() - 1];
  for (size_t i = 0; i < merge.files_.size(); ++i) {
    RETURN_IF_ERROR(merge.InInput(i, merge.TakeFile(i, shape)));
  }
  const auto count = static_cast<int64_t>(merge.files_.size());
  // Rows × heads of one call.
  const int64_t slots = kMaxMergeNumbers / count / (merge.dim_ + 2);
  if (slots == 0 || count > kMaxMergePartials) {
    return InvalidField("LIMIT_EXCEEDED", "inputs",
                        absl::StrCat(count, " files of head dimension ", merge.dim_,
                                     " are above the limit of ", kMaxMergePartials, " files or ",
                                     kMaxMergeNumbers, " numbers for one row and head"));
  }
  merge.block_heads_ = std::max<int64_t>(1, std::min(merge.heads_, slots));
  merge.block_rows_ = std::max<int64_t>(1, slots / merge.block_heads_);
  merge.row_blocks_ = (merge.rows() + merge.block_rows_ - 1) / merge.block_rows_;
  merge.head_blocks_ = (merge.heads_ + merge.block_heads_ - 1) / merge.block_heads_;
  try {
    merge.out_.resize(merge.rows() * merge.heads_ * merge.dim_);
    merge.lse_.resize(merge.rows() * merge.heads_);
    merge.rest_.resize(merge.lse_.size());
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted, "cannot allocate memory for the answer",
                     {"OUT_OF_MEMORY", {}, {}, {}});
  }
  return merge;
}

absl::Status MergeFiles::InInput(size_t file, const absl::Status& status) const {
  return InFile(files_[file].path(), status, absl::StrCat("inputs[", file, "]"));
}

absl::Status MergeFiles::TakeFile(size_t index, const std::vector<int64_t>& shape) {
  const SafetensorsFile& file = files_[index];
  if (SafetensorsFile::IsGivenBefore(files_, index)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "it is given twice, so its keys would count twice",
                     {"INPUT_TWICE", {}, {}, {}});
  }
  RETURN_IF_ERROR(CheckTensor(file, kOut, shape, false));
  RETURN_IF_ERROR(CheckTensor(file, kLse, LseShape(), true));
  RETURN_IF_ERROR(CheckLse(file, kLse, {rules_.base, rules_.tokens_heads, std::nullopt}));
  RETURN_IF_ERROR(notes_.Take(file));
  return file.Find(kRest) == nullptr ? absl::OkStatus()
                                     : CheckTensor(file, kRest, LseShape(), true);
}

MergeFiles::Block MergeFiles::BlockOf(int64_t call) const {
  const int64_t row = call / head_blocks_ * block_rows_, head = call % head_blocks_ * block_heads_;
  return {row, std::min(row + block_rows_, rows()), head, std::min(head + block_heads_, heads_)};
}

int64_t MergeFiles::LseIndex(int64_t row, int64_t head) const {
  if (rules_.tokens_heads) return row * heads_ + head;
  return (row / tokens_ * heads_ + head) * tokens_ + row % tokens_;
}

void MergeFiles::FillPartial(const SafetensorsFile& file, const Block& block,
                             v1::Partial* partial) const {
  const int64_t block_rows = block.row_end - block.row_begin;
  const int64_t block_heads = block.head_end - block.head_begin;
  partial->set_lse_base(BaseToProto(rules_.base));
  partial->set_lse_layout(v1::Partial::LSE_LAYOUT_ROWS_HEADS);
  partial->set_nonfinite_is_empty(rules_.nonfinite_is_empty);
  for (const int64_t extent : {block_rows, block_heads, dim_}) {
    partial->mutable_out()->add_shape(extent);
  }
  const bool has_rest = file.Find(kRest) != nullptr;
  for (const int64_t extent : {block_rows, block_heads}) {
    partial->mutable_lse()->add_shape(extent);
    if (has_rest) partial->mutable_lse_rest()->add_shape(extent);
  }
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    Append(file, kOut, (row * heads_ + block.head_begin) * dim_, block_heads * dim_,
           partial->mutable_out());
    for (int64_t head = block.head_begin; head < block.head_end; ++head) {
      Append(file, kLse, LseIndex(row, head), 1, partial->mutable_lse());
      if (has_rest) Append(file, kRest, LseIndex(row, head), 1, partial->mutable_lse_rest());
    }
  }
}

v1::MergePartialsRequest MergeFiles::Request(int64_t call) const {
  v1::MergePartialsRequest request;
  for (const SafetensorsFile& file : files_) {
    FillPartial(file, BlockOf(call), request.add_partials());
  }
  request.set_lse_base(BaseToProto(answer_base_));
  request.set_lse_layout(v1::Partial::LSE_LAYOUT_ROWS_HEADS);
  return request;
}

std::optional<size_t> MergeFiles::NameCell(const Block& block, FieldViolation* violation) const {
  absl::string_view path = violation->field;
  size_t file = 0;
  if (!absl::ConsumePrefix(&path, "partials[")) return std::nullopt;
  if (!absl::SimpleAtoi(path.substr(0, path.find(']')), &file)) return std::nullopt;
  if (file >= files_.size()) return std::nullopt;
  path.remove_prefix(std::min(path.size(), path.find(']') + 1));
  absl::ConsumePrefix(&path, ".");
  for (const absl::string_view tensor : {"lse.values[", "lse_rest.values["}) {
    absl::string_view index = path;
    int64_t slot = 0;
    if (!absl::ConsumePrefix(&index, tensor) || !absl::ConsumeSuffix(&index, "]")) continue;
    if (!absl::SimpleAtoi(index, &slot)) continue;
    const int64_t block_heads = block.head_end - block.head_begin;
    const int64_t row = block.row_begin + slot / block_heads;
    violation->description = absl::StrCat(
        has_batch_ ? absl::StrCat("sequence ", row / tokens_, ", ") : "", "row ", row % tokens_,
        ", head ", block.head_begin + slot % block_heads, " ", violation->description);
    path.remove_suffix(path.size() - path.find(".values["));
    break;
  }
  violation->field = std::string(path);
  return file;
}

absl::Status MergeFiles::InFiles(int64_t call, const absl::Status& error) const {
  ErrorDetail detail = DetailOf(error);
  if (detail.fields.empty()) return error;
  FieldViolation first = detail.fields[0];
  const std::optional<size_t> file = NameCell(BlockOf(call), &first);
  if (!file.has_value()) return error;
  detail.fields = {first};  // The service names one field.
  return InInput(
      *file, MakeError(error.code(), absl::StrCat(first.field, ": ", first.description), detail));
}

absl::Status MergeFiles::Take(int64_t call, const v1::Partial& answer) {
  const Block block = BlockOf(call);
  const int64_t block_heads = block.head_end - block.head_begin;
  const int64_t slots = (block.row_end - block.row_begin) * block_heads;
  if (answer.out().values_size() != slots * dim_ || answer.lse().values_size() != slots ||
      answer.lse_rest().values_size() != slots || answer.lse_base() != BaseToProto(answer_base_) ||
      answer.lse_layout() != v1::Partial::LSE_LAYOUT_ROWS_HEADS) {
    return MakeError(absl::StatusCode::kInternal,
                     "the shape of the answer differs from that of the request",
                     {"UNEXPECTED_OUTPUT", {}, {}, {}});
  }
  int64_t slot = 0;
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    for (int64_t head = block.head_begin; head < block.head_end; ++head, ++slot) {
      const float* from = answer.out().values().data() + slot * dim_;
      std::copy(from, from + dim_, out_.begin() + (row * heads_ + head) * dim_);
      lse_[LseIndex(row, head)] = answer.lse().values(static_cast<int>(slot));
      rest_[LseIndex(row, head)] = answer.lse_rest().values(static_cast<int>(slot));
    }
  }
  return absl::OkStatus();
}

int64_t MergeFiles::output_bytes() const {
  return static_cast<int64_t>((out_.size() + lse_.size() + rest_.size()) * sizeof(float));
}

absl::Status MergeFiles::WriteOutputs(SafetensorsWriter* file) const {
  for (const SafetensorsFile& one : files_) RETURN_IF_ERROR(one.CheckUnchanged());
  SafetensorMetadata notes = NotesOfMerge(answer_base_, rules_.tokens_heads);
  notes_.AddTo(&notes);
  return file->Commit({{kOut, "F32", files_[0].Find(kOut)->shape, BytesOf(out_)},
                       {kLse, "F32", LseShape(), BytesOf(lse_)},
                       {kRest, "F32", LseShape(), BytesOf(rest_)}},
                      notes);
}

}  // namespace annulus
