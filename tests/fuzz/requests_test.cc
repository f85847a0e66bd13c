// Random requests against a real service: each is refused with a reason, or answered correctly. No
// request that passes the validator ends in an internal error.
//
// ANNULUS_FUZZ_SEED repeats a run, ANNULUS_FUZZ_SECONDS sets its length.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attention/spec/tensor_bytes.h"
#include "attention/spec/tensor_table.h"
#include "attention/validate/capability.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "proto/wire/chunk_header.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "server/gateway/inline_job.h"
#include "tests/fuzz/random_requests.h"
#include "tests/fuzz/request_service.h"
#include "tests/reference/budget.h"
#include "tests/reference/from_spec.h"
#include "tests/reference/reference_attention.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

constexpr int kWorkers = 4;
constexpr int kLeastRequests = 1600;       // On any machine, however slow: some of each kind.
constexpr int64_t kMostBytes = 900 << 10;  // Limit of inputs: they must fit into one message.
// Pairs, visible or not, × heads: limits the reference's work.
constexpr int64_t kMostPairs = 1 << 20;

std::string FromEnvironment(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// The request as values, if it passes the validator.
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
  if (spec.uses_state()) return false;  // There is no state of this name.
  int64_t bytes = 0;
  for (const TensorInfo& tensor : TensorTable(spec))
    bytes += RowsOf(tensor, spec) * tensor.row_bytes();
  const double pairs = static_cast<double>(spec.q_rows()) * static_cast<double>(spec.kv_rows());
  return bytes < kMostBytes && pairs * spec.q_heads < kMostPairs;
}

// True if AttendInline accepts its numbers.
bool GoesInline(const AttentionSpec& spec) {
  if (spec.operation != Operation::kForward || spec.keeps_state()) return false;
  for (const TensorInfo& tensor : TensorTable(spec)) {
    const int64_t keys_of_a_number = tensor.id == TensorId::kBitMask ? 8 : 1;
    if (RowsOf(tensor, spec) * tensor.heads * tensor.dim * keys_of_a_number > kMaxInlineElements)
      return false;
  }
  return true;
}

int RanksAtLeast(const v1::Execution& execution) {
  const int grid = std::max(1, execution.ulysses_degree()) * std::max(1, execution.ring_degree());
  return std::max({execution.world_size(), grid, execution.inner_ring_degree()});
}

// True if fields of the request may exclude each other, although each is served: degrees, head
// assignment and partials in transit require certain strategies or several ranks.
bool MayExclude(const v1::Execution& execution) {
  return execution.ulysses_degree() != 0 || execution.ring_degree() != 0 ||
         execution.inner_ring_degree() != 0 || execution.head_deal() != 0 ||
         execution.bf16_partials();
}

// The call for a request.
enum class Way { kChunks, kMany, kInline, kByState };

Way WayOf(const AttentionSpec& spec, uint64_t seed) {
  if (seed % 4 == 0 && GoesInline(spec)) return Way::kInline;
  if (seed % 4 == 1 && spec.operation == Operation::kGradients) return Way::kByState;
  const bool fits = TensorBytes(TensorTable(spec), spec, Direction::kOutput) <= kMaxChunkBytes;
  return seed % 4 == 2 && fits ? Way::kMany : Way::kChunks;
}

std::string KindOf(Way way, const AttentionSpec& spec) {
  if (way == Way::kInline) return "served inline";
  if (way == Way::kMany) return "served among many";
  if (way == Way::kByState) return "served by state";
  return spec.operation == Operation::kGradients ? "served gradients" : "served";
}

// An estimate of the largest score, and of sinks.
double LargestScore(const AttentionSpec& spec) {
  const ScoreModifiers& modifiers = spec.modifiers;
  double scores = std::fabs(spec.scale_or_default()) * std::sqrt(spec.head_dim);
  if (modifiers.lse_offset) scores += 1;
  if (modifiers.soft_cap.has_value()) scores = std::min(scores, *modifiers.soft_cap);
  int64_t longest = 0;
  for (const Sequence& sequence : spec.sequences)
    longest = std::max({longest, sequence.q_len, sequence.kv_len});
  double slope = 0, sink = 0;
  for (const float each : modifiers.alibi_slopes) slope = std::max<double>(slope, std::fabs(each));
  for (const float each : modifiers.sinks) sink = std::max<double>(sink, std::fabs(each));
  scores += slope * static_cast<double>(longest);
  if (modifiers.bias.has_value()) scores += 1;
  return std::max(scores, sink);
}

// The relative change of an answer that rounded scores may cause.
double RoundingOf(const AttentionSpec& spec) {
  const double half_ulp = reference::UlpOf(reference::Precision::kFp32, 1) / 2;
  const double rounding = spec.arithmetic == Arithmetic::kBf16x3 ? 0x1p-17 : half_ulp;
  return 8 * std::max(1.0, LargestScore(spec)) * rounding;
}

// The influence of chance on a single answer. If a single row sees several keys, the naive answer
// may have almost none of the error that rounding explains, of weights and of scores.
reference::Slack LuckOf(const AttentionSpec& spec, const reference::Slack& allowed) {
  const double half_ulp = reference::UlpOf(reference::PrecisionOf(spec.dtype), 1) / 2;
  const double weights = spec.dtype == DataType::kFp32 ? 0 : half_ulp;
  reference::Slack slack = allowed;
  slack.times *= 3;
  slack.relative = 3 * slack.relative + RoundingOf(spec) + weights;
  return slack;
}

// Additional tolerance for large scores. One weight is then nearly all of a row, and in every draw
// of inputs it depends on chance if the naive answer is exact to the last bit. Besides, the
// rounding of a score changes its weight by more. If weights change by a large part, as with a
// scale of 1e30, no arithmetic gives meaningful numbers, but a forward job's are still finite.
// nullopt: not even this, since gradients use the exponential of a score minus a rounded LSE.
std::optional<reference::Slack> SlackOf(const AttentionSpec& spec) {
  reference::Slack slack;
  if (LargestScore(spec) <= 4) return slack;
  slack.times = 4;
  slack.relative = RoundingOf(spec);
  slack.any_number = slack.relative > 0.05;
  if (slack.any_number && spec.operation == Operation::kGradients) return std::nullopt;
  return slack;
}

class RequestsTest : public testing::Test {
 protected:
  // True if the error is one of ours and blames the request or the cluster's size.
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

  // True if a valid request of this size may be refused with this status. Its bytes are never a
  // valid reason.
  static bool MayRefuse(const RandomRequest& request, const AttentionSpec& spec,
                        const absl::Status& status) {
    const ErrorDetail detail = DetailOf(status);
    const std::string& reason = detail.reason;
    if (reason == "INSUFFICIENT_WORKERS") return RanksAtLeast(request.execution) > kWorkers;
    if (reason == "INVALID_EXECUTION") return MayExclude(request.execution);
    if (reason != "NOT_SERVED") return false;
    const auto features = detail.metadata.find("features");
    const std::string feature =
        features != detail.metadata.end() ? features->second : std::string();
    return (spec.deterministic && absl::StartsWith(feature, "deterministic/")) ||
           (spec.arithmetic == Arithmetic::kBf16x3 && feature == kBf16x3Feature &&
            !SelectIsa("amx").ok());
  }

  absl::Status Send(const RandomRequest& request, const AttentionSpec& spec, Way way,
                    Numbers* numbers) {
    switch (way) {
      case Way::kInline:
        return service_.AttendInline(request, spec, numbers);
      case Way::kMany:
        return service_.AttendMany(request, spec, numbers);
      case Way::kByState:
        return service_.AttendByState(request, spec, numbers);
      case Way::kChunks:
        break;
    }
    return service_.Attend(request, spec, numbers);
  }

  // One draw of inputs. Success with unchanged numbers->tensors: correctly refused.
  testing::AssertionResult Ask(const RandomRequest& request, const AttentionSpec& spec, Way way,
                               Numbers* numbers, bool* served) {
    const absl::Status status = Send(request, spec, way, numbers);
    *served = status.ok();
    ++tally_[status.ok() ? KindOf(way, spec) : DetailOf(status).reason];
    ++valid_;
    if (status.ok()) ++served_;
    if (status.ok() || MayRefuse(request, spec, status)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "a valid request ends with " << ErrorText(status);
  }

  // The same inputs with the same plan must give the same bits.
  testing::AssertionResult AskAgain(const RandomRequest& request, const AttentionSpec& spec,
                                    Way way, uint64_t seed, const Numbers& first) {
    Numbers second = MakeNumbers(spec, seed);
    bool served = false;
    const testing::AssertionResult result = Ask(request, spec, way, &second, &served);
    if (!result || !served || second.plan != first.plan) return result;
    ++tally_["same bits, " + KindOf(way, spec)];
    for (const auto& [tensor, bytes] : second.tensors) {
      if (bytes == first.tensors.at(tensor)) continue;
      return testing::AssertionFailure()
             << "sent again: other bits of " << TensorName(tensor) << " by " << second.plan;
    }
    return testing::AssertionSuccess();
  }

  // The naive error is a random number too. If an answer exceeds the budget by little, the answers
  // to other draws of inputs count, checked together. The first draw is excluded, because it was
  // selected for being unlikely.
  testing::AssertionResult Serve(const RandomRequest& request, const AttentionSpec& spec,
                                 uint64_t seed) {
    const Way way = WayOf(spec, seed);
    AnswerErrors errors(spec, request.execution.bf16_partials());
    Numbers numbers = MakeNumbers(spec, seed);
    bool served = false;
    testing::AssertionResult result = Ask(request, spec, way, &numbers, &served);
    const std::optional<reference::Slack> slack = SlackOf(spec);
    if (!result || !served) return result;
    if (slack.has_value()) {
      result = errors.Add(numbers);
      if (!result) return result;
      result = errors.Judge(*slack);
    }
    if (!result || seed / 4 % 4 == 0) {  // For each way to send it.
      const testing::AssertionResult again = AskAgain(request, spec, way, seed, numbers);
      if (!again) return again;
    }
    if (result) return result;
    ++tally_["drawn again"];
    std::cout << "ANNULUS_FUZZ_SEED=" << seed << " is drawn again: " << result.message() << "\n";
    if (!errors.Judge(LuckOf(spec, *slack))) return result;
    AnswerErrors others(spec, request.execution.bf16_partials());
    for (uint64_t draw = 1; draw <= 12; ++draw) {
      numbers = MakeNumbers(spec, seed + draw * 1000003);
      testing::AssertionResult other = Ask(request, spec, way, &numbers, &served);
      if (other && !served) return result;  // Chance and faults cannot be distinguished.
      if (other) other = others.Add(numbers);
      if (!other) return other;
    }
    return others.Judge(*slack);
  }

  testing::AssertionResult Try(uint64_t seed) {
    std::mt19937_64 random(seed);
    RandomRequest request = MakeRequest(&random);
    if (random() % 3 == 0) Damage(&random, &request.spec);
    if (random() % 5 == 0) Damage(&random, &request.execution);
    const testing::AssertionResult result = TryOne(request, seed, random() % 2 == 0);
    if (result) return result;
    return testing::AssertionFailure()
           << "ANNULUS_FUZZ_SEED=" << seed << ": " << result.message() << "\nspec { "
           << request.spec.ShortDebugString() << " }\nexecution { "
           << request.execution.ShortDebugString() << " }";
  }

  // `plan`: requests that the validator refuses are planned instead of computed.
  testing::AssertionResult TryOne(const RandomRequest& request, uint64_t seed, bool plan) {
    const std::optional<AttentionSpec> spec = ValidSpec(request);
    if (spec.has_value() && CanBeJudged(*spec)) return Serve(request, *spec, seed);
    // Valid large requests are only planned.
    const absl::Status status =
        spec.has_value() || plan ? service_.Plan(request) : service_.AttendInline(request);
    ++tally_[status.ok() ? "planned" : DetailOf(status).reason];
    if (status.ok()) {
      if (spec.has_value()) return testing::AssertionSuccess();
      return testing::AssertionFailure() << "what the validator refuses is served";
    }
    if (!spec.has_value()) ++refused_;
    return RefusedCleanly(status);
  }

  RequestService service_{kWorkers};
  std::map<std::string, int> tally_;
  int refused_ = 0;  // Requests that the validator refuses.
  int valid_ = 0, served_ = 0;
};

TEST_F(RequestsTest, AreRefusedCleanlyOrServedRight) {
  const std::string given = FromEnvironment("ANNULUS_FUZZ_SEED", "");
  const uint64_t first = given.empty() ? std::random_device{}() : std::stoull(given);
  const double seconds = std::stod(FromEnvironment("ANNULUS_FUZZ_SECONDS", "60"));
  std::cout << "seed " << first << std::endl;  // Printed first, in case this process dies.
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  uint64_t seed = first;
  for (int failed = 0; failed < 5; ++seed) {
    if (absl::Now() >= end && seed - first >= kLeastRequests) break;
    const testing::AssertionResult result = Try(seed);
    if (result) continue;
    ADD_FAILURE() << result.message();
    ++failed;
  }
  std::cout << seed - first << " requests:";
  for (const auto& [what, count] : tally_) std::cout << " " << what << " " << count;
  std::cout << "\n";
  if (HasFailure()) return;
  std::cout << served_ << " of " << valid_ << " valid ones served\n";
  EXPECT_GT(refused_, 0);
  EXPECT_GT(served_, 0.7 * valid_);
  for (const std::string kind :
       {"served", "served gradients", "served by state", "served inline", "served among many"}) {
    EXPECT_GT(tally_[kind], 0) << kind;
    EXPECT_GT(tally_["same bits, " + kind], 0) << kind;
  }
}

}  // namespace
}  // namespace annulus
