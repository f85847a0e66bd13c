#include "tests/fuzz/request_service.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "tests/reference/from_spec.h"

namespace annulus {
namespace {

// Long enough for a slow machine, and short enough to detect a service that hangs.
constexpr absl::Duration kPatience = absl::Seconds(120);
// Long enough for the job that uses the state. An unused state ends by itself.
constexpr int64_t kKeepSeconds = 60;

std::vector<std::byte> InputBytes(const AttentionSpec& spec, const TensorInfo& tensor,
                                  const Numbers& numbers) {
  const reference::Precision precision = reference::PrecisionOf(tensor.dtype);
  const std::map<TensorId, const std::vector<double>*> values = {
      {TensorId::kQ, &numbers.input.q},           {TensorId::kK, &numbers.input.k},
      {TensorId::kV, &numbers.input.v},           {TensorId::kOut, &numbers.upstream.out},
      {TensorId::kLse, &numbers.upstream.lse},    {TensorId::kDOut, &numbers.upstream.d_out},
      {TensorId::kDLse, &numbers.upstream.d_lse}, {TensorId::kLseRest, &numbers.upstream.lse_rest}};
  if (tensor.id == TensorId::kBias) return reference::BiasBytes(spec, numbers.input);
  if (tensor.id == TensorId::kBitMask) return reference::BitBytes(spec, numbers.input);
  if (tensor.id == TensorId::kLseOffset) return reference::OffsetBytes(spec, numbers.input);
  return reference::BytesOf(precision, *values.at(tensor.id));
}

}  // namespace

Numbers MakeNumbers(const AttentionSpec& spec, uint64_t seed) {
  const reference::Precision precision = reference::PrecisionOf(spec.dtype);
  Numbers numbers;
  numbers.input = reference::InputOf(spec);
  reference::FillNormal(seed, precision, 1.0, &numbers.input);
  reference::FillPairs(seed + 2, spec, &numbers.input);
  if (spec.operation == Operation::kGradients) {
    numbers.upstream = reference::MakeUpstream(numbers.input, precision,
                                               reference::PrecisionOf(spec.output_dtype()),
                                               spec.gradients.d_lse, seed + 1);
    if (spec.outputs.lse_rest) reference::GiveLseRests(numbers.input, &numbers.upstream);
  }
  for (const TensorInfo& tensor : TensorTable(spec)) {
    std::vector<std::byte>& bytes = numbers.tensors[tensor.id];
    if (tensor.direction == Direction::kInput) {
      bytes = InputBytes(spec, tensor, numbers);
    } else {
      bytes.assign(RowsOf(tensor, spec) * tensor.row_bytes(), std::byte{0xff});
    }
  }
  return numbers;
}

namespace {

// Adds the whole input as one chunk.
void AddChunk(const AttentionSpec& spec, const TensorInfo& tensor,
              const std::vector<std::byte>& bytes, v1::AttendRequest* request) {
  if (bytes.empty()) return;
  v1::Chunk* chunk = request->add_chunks();
  chunk->set_tensor(static_cast<v1::TensorId>(tensor.id));
  chunk->set_row_count(RowsOf(tensor, spec));
  chunk->set_data(bytes.data(), bytes.size());
}

void PlaceChunk(const TensorInfo& tensor, const v1::Chunk& chunk, std::vector<std::byte>* bytes) {
  const int64_t heads = chunk.head_count() == 0 ? tensor.heads : chunk.head_count();
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  for (int64_t row = 0; row < chunk.row_count(); ++row) {
    std::memcpy(bytes->data() + (chunk.row_begin() + row) * tensor.row_bytes() +
                    chunk.head_begin() * head_bytes,
                chunk.data().data() + row * heads * head_bytes, heads * head_bytes);
  }
}

v1::InlineTensor* MutableTensor(TensorId id, v1::InlineTensors* tensors) {
  if (id == TensorId::kQ) return tensors->mutable_q();
  if (id == TensorId::kK) return tensors->mutable_k();
  if (id == TensorId::kV) return tensors->mutable_v();
  if (id == TensorId::kBias) return tensors->mutable_bias();
  return id == TensorId::kBitMask ? tensors->mutable_bit_mask() : tensors->mutable_lse_offset();
}

// Adds the numbers; a bit mask has one for each key.
void AddTyped(const AttentionSpec& spec, const TensorInfo& tensor,
              const std::vector<std::byte>& bytes, v1::InlineTensor* typed) {
  const int64_t rows = RowsOf(tensor, spec);
  int64_t dim = tensor.dim;
  std::vector<float> values;
  if (tensor.id == TensorId::kBitMask) {
    dim = 0;
    for (const Sequence& sequence : spec.sequences) dim = std::max(dim, sequence.kv_len);
    for (int64_t i = 0; i < rows * tensor.heads * dim; ++i) {
      const std::byte eight = bytes[i / dim * tensor.dim + i % dim / 8];
      values.push_back((eight >> (i % dim % 8) & std::byte{1}) == std::byte{1} ? 1.0f : 0.0f);
    }
  } else {
    values = reference::FloatsOf(reference::PrecisionOf(tensor.dtype), bytes.data(),
                                 rows * tensor.heads * dim);
  }
  for (const int64_t extent : {rows, int64_t{tensor.heads}, dim}) typed->add_shape(extent);
  typed->mutable_values()->Add(values.begin(), values.end());
}

// A job with all its inputs.
v1::AttendRequest WholeJobOf(const RandomRequest& request, const AttentionSpec& spec,
                             Numbers* numbers) {
  v1::AttendRequest whole;
  *whole.mutable_start()->mutable_spec() = request.spec;
  *whole.mutable_start()->mutable_execution() = request.execution;
  for (const TensorInfo& tensor : TensorTable(spec)) {
    if (tensor.direction != Direction::kInput) continue;
    AddChunk(spec, tensor, numbers->tensors[tensor.id], &whole);
  }
  return whole;
}

void TakeAnswer(const v1::AttendResponse& response, const AttentionSpec& spec, Numbers* numbers) {
  if (response.has_accepted()) {
    numbers->plan = response.accepted().plan().execution().ShortDebugString();
    numbers->job_id = response.accepted().job_id();
  }
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (const v1::Chunk& chunk : response.chunks()) {
    const auto id = static_cast<TensorId>(chunk.tensor());
    PlaceChunk(*FindTensor(table, id), chunk, &numbers->tensors[id]);
  }
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
}

}  // namespace

testing::AssertionResult AnswerErrors::Add(const Numbers& numbers) {
  const std::vector<TensorInfo> table = TensorTable(spec_);
  const auto floats = [&](TensorId id) {
    const TensorInfo& tensor = *FindTensor(table, id);
    return reference::FloatsOf(reference::PrecisionOf(tensor.dtype), numbers.tensors.at(id).data(),
                               RowsOf(tensor, spec_) * tensor.heads * tensor.dim);
  };
  const reference::Precision precision = reference::PrecisionOf(spec_.dtype);
  if (spec_.operation == Operation::kGradients) {
    reference::GradientAnswer answer;
    answer.inputs = precision;
    answer.dq = floats(TensorId::kDq);
    answer.dk = floats(TensorId::kDk);
    answer.dv = floats(TensorId::kDv);
    if (!spec_.modifiers.sinks.empty()) answer.d_sink = floats(TensorId::kDSink);
    if (FindTensor(table, TensorId::kDBias) != nullptr) {
      answer.bias_heads = spec_.modifiers.bias->heads;
      answer.d_bias = floats(TensorId::kDBias);
    }
    return gradients_.Add(numbers.input, numbers.upstream, answer);
  }
  reference::Answer answer;
  answer.inputs = reference::ArithmeticOf(spec_);
  answer.output = reference::PrecisionOf(spec_.output_dtype());
  answer.out = floats(TensorId::kOut);
  answer.lse = floats(TensorId::kLse);
  answer.lse_base_2 = spec_.outputs.lse_base == LseBase::k2;
  answer.bf16_partials = bf16_partials_;
  if (spec_.outputs.max_logit) answer.max_logit = floats(TensorId::kMaxLogit);
  return forward_.Add(numbers.input, answer);
}

testing::AssertionResult AnswerErrors::Judge(const reference::Slack& slack) const {
  return spec_.operation == Operation::kGradients ? gradients_.Judge(slack) : forward_.Judge(slack);
}

RequestService::RequestService(int workers)
    // Beats are rare, so a machine that is stopped for a while loses no worker. A worker that ends
    // is detected at once by its stream.
    : serve_(workers, {"--threads", "1", "--staging-bytes", "256MiB", "--device-bytes", "256MiB",
                       "--coordinator-flag=--beat-interval=30s", "--coordinator-flag=--lease=2m"}),
      channel_(grpc::CreateChannel(serve_.address(), grpc::InsecureChannelCredentials())),
      attention_(v1::Attention::NewStub(channel_)),
      jobs_(v1::Jobs::NewStub(channel_)) {}

absl::Status RequestService::Attend(const RandomRequest& request, const AttentionSpec& spec,
                                    Numbers* numbers) {
  grpc::ClientContext context;
  SetDeadline(&context);
  const auto stream = attention_->Attend(&context);
  stream->Write(WholeJobOf(request, spec, numbers));
  stream->WritesDone();
  v1::AttendResponse response;
  while (stream->Read(&response)) TakeAnswer(response, spec, numbers);
  return FromGrpcStatus(stream->Finish());
}

absl::Status RequestService::AttendMany(const RandomRequest& request, const AttentionSpec& spec,
                                        Numbers* numbers) {
  v1::AttendRequest whole = WholeJobOf(request, spec, numbers);
  *whole.mutable_start()->mutable_timeout() = DurationToProto(kPatience);
  v1::AttendResponse response;
  for (bool kept = many_ != nullptr;; kept = false) {
    if (!kept) {
      many_context_ = std::make_unique<grpc::ClientContext>();
      many_ = attention_->AttendMany(many_context_.get());
    }
    if (many_->Write(whole) && many_->Read(&response)) break;
    // A call without jobs for too long ends with OK.
    const absl::Status end = FromGrpcStatus(many_->Finish());
    many_.reset();
    if (!kept || !end.ok()) return end;
  }
  for (;;) {
    TakeAnswer(response, spec, numbers);
    if (response.has_done()) return absl::OkStatus();
    if (response.has_error()) return ErrorFromProto(response.error());
    if (!many_->Read(&response)) return FromGrpcStatus(std::exchange(many_, nullptr)->Finish());
  }
}

absl::Status RequestService::AttendInline(const RandomRequest& request, const AttentionSpec& spec,
                                          Numbers* numbers) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::AttendInlineRequest typed;
  *typed.mutable_spec() = request.spec;
  *typed.mutable_execution() = request.execution;
  const std::vector<TensorInfo> table = TensorTable(spec);
  for (const TensorInfo& tensor : table) {
    if (tensor.direction != Direction::kInput) continue;
    AddTyped(spec, tensor, numbers->tensors[tensor.id],
             MutableTensor(tensor.id, typed.mutable_tensors()));
  }
  v1::AttendInlineResponse response;
  const absl::Status status = FromGrpcStatus(attention_->AttendInline(&context, typed, &response));
  if (!status.ok()) return status;
  numbers->plan = response.stats().execution().ShortDebugString();
  for (const TensorInfo& tensor : table) {
    if (tensor.direction != Direction::kOutput) continue;
    const v1::InlineTensor& typed_output = tensor.id == TensorId::kOut       ? response.out()
                                           : tensor.id == TensorId::kLse     ? response.lse()
                                           : tensor.id == TensorId::kLseRest ? response.lse_rest()
                                                                             : response.max_logit();
    const std::vector<double> values(typed_output.values().begin(), typed_output.values().end());
    std::vector<std::byte> bytes = reference::BytesOf(reference::PrecisionOf(tensor.dtype), values);
    if (bytes.size() != numbers->tensors[tensor.id].size()) {
      return absl::DataLossError(absl::StrCat(TensorName(tensor.id), " of ", bytes.size()));
    }
    numbers->tensors[tensor.id] = std::move(bytes);
  }
  return absl::OkStatus();
}

absl::Status RequestService::AttendByState(const RandomRequest& request, const AttentionSpec& spec,
                                           Numbers* numbers) {
  RandomRequest asked = request;
  asked.spec.mutable_forward()->mutable_keep_state()->set_seconds(kKeepSeconds);
  const absl::StatusOr<AttentionSpec> forward = SpecFromProto(asked.spec, "spec");
  if (!forward.ok()) return forward.status();
  Numbers first;
  first.tensors = numbers->tensors;
  absl::Status status = Attend(asked, *forward, &first);
  if (!status.ok()) return status;
  const auto take = [&](TensorId id, DataType dtype, std::vector<double>* values) {
    const std::vector<std::byte>& bytes = numbers->tensors[id] = first.tensors[id];
    const std::vector<float> floats =
        reference::FloatsOf(reference::PrecisionOf(dtype), bytes.data(), values->size());
    values->assign(floats.begin(), floats.end());
  };
  take(TensorId::kOut, spec.output_dtype(), &numbers->upstream.out);
  take(TensorId::kLse, DataType::kFp32, &numbers->upstream.lse);
  asked.spec = request.spec;
  asked.spec.mutable_gradients()->set_state(first.job_id);
  asked.spec.mutable_gradients()->set_release_state(true);
  const absl::StatusOr<AttentionSpec> by_state = SpecFromProto(asked.spec, "spec");
  if (!by_state.ok()) return by_state.status();
  status = Attend(asked, *by_state, numbers);
  numbers->plan = absl::StrCat(first.plan, " then ", numbers->plan);
  return status;
}

absl::Status RequestService::AttendInline(const RandomRequest& request) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::AttendInlineRequest by_seed;
  *by_seed.mutable_spec() = request.spec;
  *by_seed.mutable_execution() = request.execution;
  by_seed.mutable_synthetic()->set_seed(1);
  v1::AttendInlineResponse response;
  return FromGrpcStatus(attention_->AttendInline(&context, by_seed, &response));
}

absl::Status RequestService::Plan(const RandomRequest& request) {
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::PlanJobRequest plan;
  *plan.mutable_spec() = request.spec;
  *plan.mutable_execution() = request.execution;
  v1::Plan response;
  return FromGrpcStatus(jobs_->PlanJob(&context, plan, &response));
}

}  // namespace annulus
