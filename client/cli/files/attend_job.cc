#include "client/cli/files/attend_job.h"

#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attention/numerics/synthetic.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/files/bias_and_mask_files.h"
#include "client/cli/files/input_names.h"
#include "client/cli/files/lse_notes.h"
#include "proto/wire/convert.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

absl::Status Disagrees(absl::string_view field, int64_t given, int64_t found) {
  return InvalidField("SHAPE_MISMATCH", absl::StrCat("spec.", field),
                      absl::StrCat("is ", given, " in the spec, but ", found, " in the input"));
}

absl::string_view FileDtype(DataType dtype) {
  if (dtype == DataType::kFp16) return "F16";
  return dtype == DataType::kBf16 ? "BF16" : "F32";
}

// Sets an absent (zero) field, or compares one that is set.
template <typename T>
absl::Status Settle(absl::string_view field, int64_t found, T* value) {
  if (found > std::numeric_limits<T>::max()) {
    return InvalidField(
        "DIM_OVERFLOW", absl::StrCat("spec.", field),
        absl::StrCat(found, " is above the limit of ", std::numeric_limits<T>::max()));
  }
  if (*value == 0) *value = static_cast<T>(found);
  return *value == found ? absl::OkStatus() : Disagrees(field, *value, found);
}

absl::Status SettleSequences(const JobShape& shape, AttentionSpec* spec) {
  const int64_t batch = shape.batch.value_or(1);
  if (spec->sequences.empty()) {
    if (batch > Limits().max_sequences) {
      return InvalidField("LIMIT_EXCEEDED", "spec.sequences",
                          absl::StrCat(batch, " is above the limit of ", Limits().max_sequences));
    }
    spec->sequences.resize(batch);
    for (Sequence& sequence : spec->sequences) {
      sequence.q_len = shape.q_tokens;
      sequence.kv_len = shape.kv_tokens;
    }
    return absl::OkStatus();
  }
  if (shape.batch.has_value()) {
    if (batch != static_cast<int64_t>(spec->sequences.size())) {
      return Disagrees("sequences", static_cast<int64_t>(spec->sequences.size()), batch);
    }
    for (const Sequence& sequence : spec->sequences) {
      if (sequence.q_len != shape.q_tokens)
        return Disagrees("sequences.q_len", sequence.q_len, shape.q_tokens);
      if (sequence.kv_len != shape.kv_tokens) {
        return Disagrees("sequences.kv_len", sequence.kv_len, shape.kv_tokens);
      }
    }
    return absl::OkStatus();
  }
  // Before the sums of rows, which could overflow.
  RETURN_IF_ERROR(Validate(*spec, Execution(), Limits()));
  if (spec->q_rows() != shape.q_tokens)
    return Disagrees("sequences.q_len", spec->q_rows(), shape.q_tokens);
  if (spec->kv_rows() != shape.kv_tokens) {
    return Disagrees("sequences.kv_len", spec->kv_rows(), shape.kv_tokens);
  }
  return absl::OkStatus();
}

absl::StatusOr<DataType> DtypeNamed(absl::string_view name) {
  for (DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    if (DataTypeName(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError("");
}

// True for tensors with one number for each row and head: [heads, tokens] in files.
bool IsOfRows(TensorId id) {
  return id == TensorId::kLse || id == TensorId::kDLse || id == TensorId::kMaxLogit ||
         id == TensorId::kLseOffset || id == TensorId::kLseRest;
}

// Sums an fp32 tensor of one number for each row and head over the rows, in their order, so that
// the bits do not depend on the plan.
std::vector<float> SumsOfRows(absl::Span<const std::byte> rows, int32_t heads) {
  std::vector<double> sums(heads, 0.0);
  for (size_t i = 0; i < rows.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, rows.data() + i * sizeof(float), sizeof(float));
    sums[i % heads] += value;
  }
  return {sums.begin(), sums.end()};
}

absl::Status Resize(std::vector<std::byte>* memory, size_t bytes) {
  try {
    memory->resize(bytes);
  } catch (const std::bad_alloc&) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("cannot allocate ", bytes, " bytes"),
                     {"OUT_OF_MEMORY", {}, {}, {}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SyntheticShape> ParseSynthetic(absl::string_view text) {
  const auto bad = [&](absl::string_view what) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("'", text, "': ", what, "; the form is B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed"),
        {"BAD_SYNTHETIC", {}, {}, {}});
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  if (parts.size() != 8 && parts.size() != 9) return bad("it must have 8 or 9 parts");
  SyntheticShape synthetic;
  JobShape& shape = synthetic.shape;
  int64_t batch = 0;
  std::vector<int64_t*> numbers = {&batch,         &shape.q_tokens, &shape.kv_tokens,
                                   &shape.q_heads, &shape.kv_heads, &shape.head_dim};
  if (parts.size() == 9) numbers.push_back(&shape.head_dim_v);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!absl::SimpleAtoi(parts[i], numbers[i]) || *numbers[i] < 0) {
      return bad(absl::StrCat("'", parts[i], "' is not a whole number of 0 or more"));
    }
  }
  if (parts.size() == 8) shape.head_dim_v = shape.head_dim;
  shape.layout = TensorLayout::kBshd;
  shape.batch = batch;
  const absl::StatusOr<DataType> dtype = DtypeNamed(parts[numbers.size()]);
  if (!dtype.ok()) return bad("the dtype must be fp32, fp16 or bf16");
  shape.dtype = *dtype;
  if (!absl::SimpleAtoi(parts.back(), &synthetic.seed))
    return bad("the seed must be a 64-bit whole number");
  return synthetic;
}

bool IsFp32DOut(const SafetensorsFile& file, DataType out_dtype) {
  const SafetensorInfo* d_out = file.Find(TensorName(TensorId::kDOut));
  if (d_out == nullptr || out_dtype != DataType::kFp32) return false;
  const absl::StatusOr<DataType> dtype = DtypeInFile(*d_out);
  return dtype.ok() && *dtype == DataType::kFp32;
}

absl::Status TakeGradientOptions(const SafetensorsFile& file, v1::AttentionSpec* spec) {
  const SafetensorInfo* output = file.Find(TensorName(TensorId::kOut));
  if (output == nullptr) return MissingTensor(file, TensorName(TensorId::kOut));
  ASSIGN_OR_RETURN(const DataType dtype, DtypeInFile(*output));
  if (spec->out_dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    spec->set_out_dtype(static_cast<v1::DataType>(dtype));
  }
  if (file.Find(TensorName(TensorId::kDLse)) != nullptr) spec->mutable_gradients()->set_d_lse(true);
  if (file.Find(TensorName(TensorId::kLseRest)) != nullptr)
    spec->mutable_outputs()->set_lse_rest(true);
  if (IsFp32DOut(file, static_cast<DataType>(spec->out_dtype())))
    spec->mutable_gradients()->set_d_out_dtype(v1::DATA_TYPE_FP32);
  return absl::OkStatus();
}

absl::StatusOr<AttentionSpec> CompleteSpec(v1::AttentionSpec given, const JobShape& shape) {
  ASSIGN_OR_RETURN(AttentionSpec spec, SpecFromProto(given, "spec"));
  if (spec.dtype == DataType::kUnspecified) spec.dtype = shape.dtype;
  if (spec.dtype != shape.dtype) {
    return InvalidField("SHAPE_MISMATCH", "spec.dtype",
                        absl::StrCat("is ", DataTypeName(spec.dtype), " in the spec, but ",
                                     DataTypeName(shape.dtype), " in the input"));
  }
  RETURN_IF_ERROR(Settle("q_heads", shape.q_heads, &spec.q_heads));
  RETURN_IF_ERROR(Settle("kv_heads", shape.kv_heads, &spec.kv_heads));
  RETURN_IF_ERROR(Settle("head_dim", shape.head_dim, &spec.head_dim));
  RETURN_IF_ERROR(Settle("head_dim_v", shape.head_dim_v, &spec.head_dim_v));
  RETURN_IF_ERROR(SettleSequences(shape, &spec));
  return spec;
}

AttendJob::AttendJob(const AttentionSpec& spec, const JobShape& shape)
    : spec_(spec), shape_(shape) {}

absl::Status AttendJob::Allocate(const TensorInfo& tensor) {
  RETURN_IF_ERROR(Resize(&memory_[tensor.id], RowsOf(tensor, spec_) * tensor.row_bytes()));
  pointers_[tensor.id] = memory_[tensor.id];
  return absl::OkStatus();
}

absl::Status AttendJob::AllocateOutputs() {
  for (const TensorInfo& tensor : TensorTable(spec_)) {
    if (tensor.direction == Direction::kOutput) RETURN_IF_ERROR(Allocate(tensor));
  }
  return absl::OkStatus();
}

CallerTensor AttendJob::InFile(const TensorInfo& tensor) const {
  CallerTensor in_file;
  in_file.layout = shape_.layout;
  if (IsOfRows(tensor.id)) {
    in_file.layout = shape_.batch.has_value() ? TensorLayout::kBhsd : TensorLayout::kHnd;
  }
  in_file.element_bytes = BytesPerElement(tensor.dtype);
  in_file.shape =
      ShapeIn(in_file.layout, {shape_.batch.value_or(1),
                               tensor.rows == RowSpace::kQuery ? shape_.q_tokens : shape_.kv_tokens,
                               tensor.heads, tensor.dim});
  return in_file;
}

std::vector<int64_t> AttendJob::ShapeInFile(const TensorInfo& tensor) const {
  if (tensor.id == TensorId::kDSink) return {tensor.heads};
  std::vector<int64_t> shape = InFile(tensor).shape;
  if (IsOfRows(tensor.id)) shape.pop_back();
  return shape;
}

absl::Status AttendJob::ReadInput(const TensorInfo& tensor) {
  if (!PairNameInFile(tensor.id).empty()) {
    RETURN_IF_ERROR(Allocate(tensor));
    return ReadBiasOrMaskInput(*file_, tensor,
                               {shape_.batch, shape_.q_tokens, BiasAndMaskInputs(spec_).width},
                               memory_[tensor.id].data());
  }
  const absl::string_view name = TensorName(tensor.id);
  const SafetensorInfo* info = file_->Find(name);
  if (info == nullptr) return MissingTensor(*file_, name);
  const std::vector<int64_t> shape = ShapeInFile(tensor);
  if (info->shape != shape) {
    return InvalidField("SHAPE_MISMATCH", name,
                        absl::StrCat("has shape [", absl::StrJoin(info->shape, ", "),
                                     "], but the job requires [", absl::StrJoin(shape, ", "), "]"));
  }
  ASSIGN_OR_RETURN(const DataType dtype, DtypeInFile(*info));
  if (dtype != tensor.dtype) {
    return InvalidField("UNSUPPORTED_DTYPE", name,
                        absl::StrCat("is ", DataTypeName(dtype), ", but the job requires ",
                                     DataTypeName(tensor.dtype)));
  }
  const absl::Span<const std::byte> bytes = file_->Bytes(*info);
  const CallerTensor in_file = InFile(tensor);
  if (IsPacked(in_file.layout)) {
    pointers_[tensor.id] = bytes;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Allocate(tensor));
  return PackRows(in_file, bytes, absl::MakeSpan(memory_[tensor.id]));
}

absl::StatusOr<AttendJob> AttendJob::FromFile(SafetensorsFile file, const AttentionSpec& spec,
                                              const JobShape& shape) {
  AttendJob job(spec, shape);
  job.file_ = std::move(file);
  for (const TensorInfo& tensor : TensorTable(spec)) {
    if (tensor.direction == Direction::kInput) RETURN_IF_ERROR(job.ReadInput(tensor));
  }
  RETURN_IF_ERROR(job.AllocateOutputs());
  return job;
}

absl::StatusOr<AttendJob> AttendJob::Synthetic(const AttentionSpec& spec,
                                               const SyntheticShape& shape) {
  AttendJob job(spec, shape.shape);
  for (const TensorInfo& tensor : TensorTable(spec)) {
    if (tensor.direction != Direction::kInput) continue;
    RETURN_IF_ERROR(job.Allocate(tensor));
    FillSyntheticRows(shape.seed, tensor, {0, RowsOf(tensor, spec)}, job.memory_[tensor.id].data());
  }
  RETURN_IF_ERROR(job.AllocateOutputs());
  return job;
}

void AttendJob::FillArguments(AttendArguments* arguments) {
  arguments->spec = spec_;
  for (const TensorInfo& tensor : TensorTable(spec_)) {
    if (tensor.direction == Direction::kInput) {
      arguments->inputs[tensor.id] = pointers_.at(tensor.id);
    } else if (tensor.direction == Direction::kOutput) {
      arguments->outputs[tensor.id] = absl::MakeSpan(memory_.at(tensor.id));
    }
  }
}

std::map<TensorId, const std::byte*> AttendJob::tensors() const {
  std::map<TensorId, const std::byte*> tensors;
  for (const auto& [id, bytes] : pointers_) tensors[id] = bytes.data();
  return tensors;
}

int64_t AttendJob::bytes(Direction direction) const {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(spec_)) {
    if (tensor.direction == direction) bytes += pointers_.at(tensor.id).size();
  }
  return bytes;
}

uint32_t AttendJob::Crc32c(TensorId id) const {
  return annulus::Crc32c(pointers_.at(id).data(), pointers_.at(id).size());
}

FileTensor AttendJob::BiasGradientInFile(const TensorInfo& tensor) const {
  const SafetensorInfo* bias =
      file_.has_value() ? file_->Find(PairNameInFile(TensorId::kBias)) : nullptr;
  return BiasGradientForFile(bias == nullptr ? std::vector<int64_t>() : bias->shape,
                             BiasAndMaskInputs(spec_).bias_dtype, tensor,
                             {shape_.batch, shape_.q_tokens, BiasAndMaskInputs(spec_).width},
                             pointers_.at(tensor.id).data());
}

bool AttendJob::LeavesLseBaseOpen() const {
  const bool has_lse = spec_.operation == Operation::kGradients && !spec_.uses_state();
  return has_lse && file_.has_value() && !SaysLseBase(*file_);
}

bool AttendJob::MayHaveBf16Partials() const {
  return file_.has_value() && MayBeOfBf16Partials(*file_);
}

absl::Status AttendJob::CheckInputs() const {
  return file_.has_value() ? file_->CheckUnchanged() : absl::OkStatus();
}

absl::Status AttendJob::WriteOutputs(SafetensorsWriter* file, bool bf16_partials) const {
  RETURN_IF_ERROR(CheckInputs());
  std::vector<SafetensorView> views;
  std::map<TensorId, std::vector<std::byte>> turned;
  std::vector<float> sinks;
  FileTensor of_bias;
  for (const TensorInfo& tensor : TensorTable(spec_)) {
    if (tensor.direction != Direction::kOutput) continue;
    absl::Span<const std::byte> bytes = pointers_.at(tensor.id);
    if (tensor.id == TensorId::kDSink) {
      sinks = SumsOfRows(bytes, tensor.heads);
      bytes = {reinterpret_cast<const std::byte*>(sinks.data()), sinks.size() * sizeof(float)};
    } else if (tensor.id == TensorId::kDBias) {
      of_bias = BiasGradientInFile(tensor);
      views.push_back({std::string(TensorName(tensor.id)),
                       std::string(FileDtype(BiasAndMaskInputs(spec_).bias_dtype)), of_bias.shape,
                       of_bias.bytes});
      continue;
    } else if (const CallerTensor in_file = InFile(tensor); !IsPacked(in_file.layout)) {
      std::vector<std::byte>& laid = turned[tensor.id];
      RETURN_IF_ERROR(Resize(&laid, bytes.size()));
      RETURN_IF_ERROR(UnpackRows(in_file, bytes, absl::MakeSpan(laid)));
      bytes = laid;
    }
    views.push_back({std::string(TensorName(tensor.id)), std::string(FileDtype(tensor.dtype)),
                     ShapeInFile(tensor), bytes});
  }
  return file->Commit(views, NotesOfJob(spec_, bf16_partials));
}

}  // namespace annulus
