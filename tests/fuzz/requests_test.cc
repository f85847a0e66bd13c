// Random requests against a real service: each is refused with a reason, or served right. Nothing
// that the validator lets through ends in an internal error.
//
// ANNULUS_FUZZ_SEED repeats a run, ANNULUS_FUZZ_SECONDS sets its length.

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "attention/error.h"
#include "attention/tensor_table.h"
#include "attention/validate.h"
#include "proto/convert.h"
#include "proto/status.h"
#include "tests/bench/serve.h"
#include "tests/fuzz/random_requests.h"
#include "tests/reference/budget.h"
#include "tests/reference/from_spec.h"
#include "tests/reference/gradient_budget.h"

namespace annulus {
namespace {

constexpr int kWorkers = 4;
constexpr int64_t kMostBytes = 900 << 10;  // Of inputs: what one message holds.
constexpr int64_t kMostPairs = 1 << 20;    // Visible or not, × heads: what the reference judges.
constexpr absl::Duration kPatience = absl::Seconds(60);

std::string FromEnvironment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// Inputs of a job and what it answered.
struct Numbers {
  reference::Input input;
  reference::Upstream upstream;
  std::map<TensorId, std::vector<std::byte>> tensors;
};

std::vector<std::byte> InputBytes(const AttentionSpec& spec, const TensorInfo& tensor,
                                  const Numbers& numbers) {
  const reference::Precision precision = reference::PrecisionOf(tensor.dtype);
  const std::map<TensorId, const std::vector<double>*> values = {
      {TensorId::kQ, &numbers.input.q},          {TensorId::kK, &numbers.input.k},
      {TensorId::kV, &numbers.input.v},          {TensorId::kOut, &numbers.upstream.out},
      {TensorId::kLse, &numbers.upstream.lse},   {TensorId::kDOut, &numbers.upstream.d_out},
      {TensorId::kDLse, &numbers.upstream.d_lse}};
  if (tensor.id == TensorId::kBias) return reference::BiasBytes(spec, numbers.input);
  if (tensor.id == TensorId::kBitMask) return reference::BitBytes(spec, numbers.input);
  if (tensor.id == TensorId::kLseOffset) return reference::OffsetBytes(spec, numbers.input);
  return reference::BytesOf(precision, *values.at(tensor.id));
}

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

// The whole of an input, as one chunk.
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

class Service {
 public:
  Service()
      : serve_(kWorkers,
               {"--threads", "1", "--staging-bytes", "256MiB", "--device-bytes", "256MiB"}),
        channel_(grpc::CreateChannel(serve_.address(), grpc::InsecureChannelCredentials())),
        attention_(v1::Attention::NewStub(channel_)),
        jobs_(v1::Jobs::NewStub(channel_)) {}

  // Sends the inputs and fills the outputs; `spec` says what they are.
  absl::Status Attend(const RandomRequest& request, const AttentionSpec& spec, Numbers* numbers) {
    grpc::ClientContext context;
    SetDeadline(&context);
    const auto stream = attention_->Attend(&context);
    v1::AttendRequest start;
    *start.mutable_start()->mutable_spec() = request.spec;
    *start.mutable_start()->mutable_execution() = request.execution;
    const std::vector<TensorInfo> table = TensorTable(spec);
    for (const TensorInfo& tensor : table) {
      if (tensor.direction == Direction::kOutput) continue;
      AddChunk(spec, tensor, numbers->tensors[tensor.id], &start);
    }
    stream->Write(start);
    stream->WritesDone();
    v1::AttendResponse response;
    while (stream->Read(&response)) {
      for (const v1::Chunk& chunk : response.chunks()) {
        const auto id = static_cast<TensorId>(chunk.tensor());
        PlaceChunk(*FindTensor(table, id), chunk, &numbers->tensors[id]);
      }
    }
    return FromGrpcStatus(stream->Finish());
  }

  absl::Status Plan(const RandomRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::PlanJobRequest plan;
    *plan.mutable_spec() = request.spec;
    *plan.mutable_execution() = request.execution;
    v1::Plan response;
    return FromGrpcStatus(jobs_->PlanJob(&context, plan, &response));
  }

  absl::Status AttendInline(const RandomRequest& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::AttendInlineRequest inline_request;
    *inline_request.mutable_spec() = request.spec;
    *inline_request.mutable_execution() = request.execution;
    inline_request.mutable_synthetic()->set_seed(1);
    v1::AttendInlineResponse response;
    return FromGrpcStatus(attention_->AttendInline(&context, inline_request, &response));
  }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  }

  const bench::Serve serve_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Attention::Stub> attention_;
  const std::unique_ptr<v1::Jobs::Stub> jobs_;
};

testing::AssertionResult Judge(const AttentionSpec& spec, const Numbers& numbers) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  const auto floats = [&](TensorId id) {
    const TensorInfo& tensor = *FindTensor(table, id);
    return reference::FloatsOf(reference::PrecisionOf(tensor.dtype), numbers.tensors.at(id).data(),
                               RowsOf(tensor, spec) * tensor.heads * tensor.dim);
  };
  const reference::Precision precision = reference::PrecisionOf(spec.dtype);
  if (spec.operation == Operation::kGradients) {
    reference::GradientAnswer answer;
    answer.inputs = precision;
    answer.dq = floats(TensorId::kDq);
    answer.dk = floats(TensorId::kDk);
    answer.dv = floats(TensorId::kDv);
    if (!spec.modifiers.sinks.empty()) answer.d_sink = floats(TensorId::kDSink);
    if (FindTensor(table, TensorId::kDBias) != nullptr) {
      answer.bias_heads = spec.modifiers.bias->heads;
      answer.d_bias = floats(TensorId::kDBias);
    }
    return reference::CheckGradients(numbers.input, numbers.upstream, answer);
  }
  reference::Answer answer;
  answer.inputs = reference::ArithmeticOf(spec);
  answer.output = reference::PrecisionOf(spec.output_dtype());
  answer.out = floats(TensorId::kOut);
  answer.lse = floats(TensorId::kLse);
  answer.lse_base_2 = spec.outputs.lse_base == LseBase::k2;
  if (spec.outputs.max_logit) answer.max_logit = floats(TensorId::kMaxLogit);
  return reference::CheckWithinBudget(numbers.input, answer);
}

// The request as values, where it is one that the validator lets through.
std::optional<AttentionSpec> ValidSpec(const RandomRequest& request) {
  const auto spec = SpecFromProto(request.spec, "spec");
  const auto execution = ExecutionFromProto(request.execution, "execution");
  if (!spec.ok() || !execution.ok()) return std::nullopt;
  Limits limits;
  limits.max_keep_state = absl::Minutes(10);
  if (!Validate(*spec, *execution, limits).ok()) return std::nullopt;
  return *spec;
}

bool CanBeJudged(const AttentionSpec& spec) {
  if (spec.uses_state()) return false;  // There is none of this name.
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(spec))
    bytes += RowsOf(tensor, spec) * tensor.row_bytes();
  const double pairs = static_cast<double>(spec.q_rows()) * static_cast<double>(spec.kv_rows());
  return bytes < kMostBytes && pairs * spec.q_heads < kMostPairs;
}

// Where scores are large, one weight is nearly all of a row, and whether the naive answer is right
// to the last bit is luck for every draw of inputs. With a scale like 1e30 a step of the LSE, which
// gradients are given in fp32, is worth more than a whole weight: such gradients mean nothing, in
// whatever arithmetic.
bool HasNumbers(const AttentionSpec& spec) {
  const double scores = std::fabs(spec.scale_or_default()) * std::sqrt(spec.head_dim);
  return scores <= 4 || spec.modifiers.soft_cap.value_or(1e9) <= 100;
}

class RequestsTest : public testing::Test {
 protected:
  // Refused for a reason of ours that blames the request or the cluster's size.
  static testing::AssertionResult RefusedCleanly(const absl::Status& status) {
    static const auto* codes = new std::set<absl::StatusCode>{
        absl::StatusCode::kInvalidArgument, absl::StatusCode::kUnimplemented,
        absl::StatusCode::kFailedPrecondition, absl::StatusCode::kResourceExhausted,
        absl::StatusCode::kNotFound};
    const ErrorDetail detail = DetailOf(status);
    if (codes->count(status.code()) == 0 || detail.reason.empty() ||
        detail.reason == absl::StatusCodeToString(status.code())) {
      return testing::AssertionFailure() << ErrorText(status);
    }
    return testing::AssertionSuccess();
  }

  // What a valid request of this size may still be refused for. Whether ranks share a head is known
  // only to who knows the workers.
  static bool MayRefuse(const AttentionSpec& spec, const absl::Status& status) {
    const ErrorDetail detail = DetailOf(status);
    const std::string& reason = detail.reason;
    if (spec.deterministic && reason == "NOT_SERVED") {
      const auto features = detail.metadata.find("features");
      return features != detail.metadata.end() &&
             absl::StartsWith(features->second, "deterministic/");
    }
    return reason == "INSUFFICIENT_WORKERS" || reason == "INVALID_EXECUTION" ||
           reason == "INSUFFICIENT_CAPACITY";
  }

  // Once with one draw of inputs.
  testing::AssertionResult ServeOnce(const RandomRequest& request, const AttentionSpec& spec,
                                     uint64_t seed) {
    Numbers numbers = MakeNumbers(spec, seed);
    const absl::Status status = service_.Attend(request, spec, &numbers);
    ++tally_[status.ok() ? "served" : DetailOf(status).reason];
    if (!status.ok()) {
      if (MayRefuse(spec, status)) return testing::AssertionSuccess();
      hopeless_ = true;
      return testing::AssertionFailure() << "a valid request ends with " << ErrorText(status);
    }
    if (!HasNumbers(spec)) return testing::AssertionSuccess();
    return Judge(spec, numbers);
  }

  // The budget's yardstick is a random number too: an answer that breaches it by luck does not do
  // so for other inputs.
  testing::AssertionResult Serve(const RandomRequest& request, const AttentionSpec& spec,
                                 uint64_t seed) {
    testing::AssertionResult first = ServeOnce(request, spec, seed);
    if (first || hopeless_) return first;
    ++tally_["drawn again"];
    int wrong = 0;
    for (uint64_t again = 1; again <= 3; ++again) {
      const testing::AssertionResult other = ServeOnce(request, spec, seed + again * 1000003);
      if (hopeless_) return other;
      wrong += !other;
    }
    return wrong < 2 ? testing::AssertionSuccess() : first;
  }

  testing::AssertionResult Try(uint64_t seed) {
    std::mt19937_64 random(seed);
    RandomRequest request = MakeRequest(&random);
    if (random() % 3 == 0) Damage(&random, &request.spec);
    if (random() % 5 == 0) Damage(&random, &request.execution);
    const std::optional<AttentionSpec> spec = ValidSpec(request);
    if (spec.has_value() && CanBeJudged(*spec)) return Serve(request, *spec, seed);
    // What is valid and large is planned only.
    const absl::Status status = spec.has_value() || random() % 2 == 0
                                    ? service_.Plan(request)
                                    : service_.AttendInline(request);
    ++tally_[status.ok() ? "planned" : DetailOf(status).reason];
    if (status.ok()) {
      if (spec.has_value()) return testing::AssertionSuccess();
      return testing::AssertionFailure() << "what the validator refuses is served";
    }
    return RefusedCleanly(status);
  }

  Service service_;
  bool hopeless_ = false;  // What came is no matter of luck.
  std::map<std::string, int> tally_;
};

TEST_F(RequestsTest, AreRefusedCleanlyOrServedRight) {
  const std::string given = FromEnvironment("ANNULUS_FUZZ_SEED", "");
  const uint64_t first = given.empty() ? std::random_device{}() : std::stoull(given);
  const double seconds = std::stod(FromEnvironment("ANNULUS_FUZZ_SECONDS", "60"));
  std::cout << "seed " << first << "\n";
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  uint64_t seed = first;
  for (; absl::Now() < end; ++seed) {
    const testing::AssertionResult result = Try(seed);
    if (result) continue;
    std::mt19937_64 random(seed);
    const RandomRequest request = MakeRequest(&random);
    ADD_FAILURE() << "ANNULUS_FUZZ_SEED=" << seed << ": " << result.message() << "\n"
                  << request.spec.ShortDebugString() << "\n"
                  << request.execution.ShortDebugString();
    if (testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() > 5)
      break;
  }
  std::cout << seed - first << " requests:";
  for (const auto& [what, count] : tally_) std::cout << " " << what << " " << count;
  std::cout << "\n";
  EXPECT_GT(tally_["served"], static_cast<int>(seconds));
}

}  // namespace
}  // namespace annulus
