#include "client/cli/report.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "attention/spec/spec.h"
#include "base/error.h"
#include "base/escape_for_terminal.h"
#include "client/cli/plain_message.h"
#include "proto/wire/convert.h"

namespace annulus {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitRefused;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return kExitTryAgain;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitDeadline;
    case absl::StatusCode::kDataLoss:
      return kExitWrongAnswer;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

namespace {

// Returns a field path without "inputs[1]." or "files[1].": the message has the file's name
// instead.
absl::string_view InItsFile(absl::string_view field) {
  if (!absl::StartsWith(field, "inputs[") && !absl::StartsWith(field, "files[")) return field;
  field.remove_prefix(std::min(field.size(), field.find(']') + 1));
  absl::ConsumePrefix(&field, ".");
  return field;
}

// True if the message covers the violation: it is the description, or ends with the field's name
// and the description.
bool IsSaidBy(absl::string_view message, const FieldViolation& violation) {
  if (message == violation.description) return true;
  if (!absl::ConsumeSuffix(&message, violation.description)) return false;
  if (!absl::ConsumeSuffix(&message, ": ")) return false;
  return absl::EndsWith(message, InItsFile(violation.field));
}

}  // namespace

ExitCode ReportError(const absl::Status& given, bool json) {
  const ErrorDetail detail = DetailOf(given);
  const absl::Status status = MakeError(given.code(), PlainMessage(given), detail);
  const std::string code = absl::StatusCodeToString(status.code());
  std::string text = absl::StrCat("annulus: ", EscapeForTerminal(ErrorText(status)), "\n");
  for (const FieldViolation& field : detail.fields) {
    if (IsSaidBy(status.message(), field)) continue;
    absl::StrAppend(
        &text, EscapeForTerminal(absl::StrCat("  ", field.field, ": ", field.description)), "\n");
  }
  // One write, because other processes may share standard error.
  std::cerr << text;
  if (json) {
    nlohmann::json error = {{"code", code},
                            {"reason", detail.reason},
                            {"message", std::string(status.message())},
                            {"metadata", detail.metadata},
                            {"fields", nlohmann::json::array()}};
    for (const FieldViolation& field : detail.fields) {
      error["fields"].push_back({{"field", field.field}, {"description", field.description}});
    }
    if (detail.retry_after.has_value()) {
      error["retry_after_seconds"] = absl::ToDoubleSeconds(*detail.retry_after);
    }
    const nlohmann::json whole = {{"error", error}};
    std::cout << whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
  return ExitCodeOf(status);
}

nlohmann::json ExecutionJson(const v1::Execution& proto) {
  const absl::StatusOr<Execution> execution = ExecutionFromProto(proto, "execution");
  if (!execution.ok()) return nullptr;
  return {{"strategy", StrategyName(execution->strategy)},
          {"layout", LayoutName(execution->layout)},
          {"stripe", execution->stripe},
          {"world_size", execution->world_size},
          {"ulysses_degree", execution->ulysses_degree},
          {"ring_degree", execution->ring_degree},
          {"inner_ring_degree", execution->inner_ring_degree},
          {"head_deal", HeadDealName(execution->head_deal)},
          {"bf16_partials", execution->bf16_partials}};
}

namespace {

// The parameters that a strategy's name does not include.
std::string DegreesText(const Execution& execution) {
  std::string text;
  if (execution.strategy == Strategy::kUlyssesRing) {
    absl::StrAppend(&text, " ", execution.ulysses_degree, "×", execution.ring_degree);
  }
  if (execution.strategy == Strategy::kDoubleRing && execution.inner_ring_degree > 0) {
    absl::StrAppend(&text, " of ", execution.inner_ring_degree);
  }
  if (execution.head_deal == HeadAssignment::kUnits) absl::StrAppend(&text, " by units");
  if (execution.bf16_partials) absl::StrAppend(&text, " with bf16 partials");
  return text;
}

std::string LayoutText(const Execution& execution) {
  const std::string name(LayoutName(execution.layout));
  return execution.stripe == 0 ? name : absl::StrCat(name, " by ", execution.stripe);
}

}  // namespace

std::string ExecutionText(const v1::Execution& proto) {
  const absl::StatusOr<Execution> execution = ExecutionFromProto(proto, "execution");
  if (!execution.ok()) return "unknown";
  const int32_t world = execution->world_size;
  return absl::StrCat(
      StrategyName(execution->strategy), DegreesText(*execution), ", ", LayoutText(*execution),
      ", ", world == 0 ? "any number of" : absl::StrCat(world), " worker", world == 1 ? "" : "s");
}

namespace {

std::string StatusText(const v1::KeptState& state) {
  return LowerSuffix(v1::KeptState::Status_Name(state.status()));
}

std::string ExpiryText(const v1::KeptState& state) {
  return absl::FormatTime(absl::RFC3339_sec, TimeFromProto(state.expire_time()),
                          absl::UTCTimeZone());
}

}  // namespace

nlohmann::json KeptStateJson(const v1::Job& job) {
  const v1::KeptState& state = job.kept_state();
  nlohmann::json json = {
      {"status", StatusText(state)}, {"held_bytes", state.held_bytes()}, {"users", state.users()}};
  if (state.has_expire_time()) json["expire_time"] = ExpiryText(state);
  return json;
}

std::string KeptStateText(const v1::Job& job) {
  const v1::KeptState& state = job.kept_state();
  std::string text = StatusText(state);
  if (state.status() == v1::KeptState::STATUS_HELD) {
    absl::StrAppend(&text, " until ", ExpiryText(state));
  }
  return text;
}

std::string LowerSuffix(absl::string_view name) {
  return absl::AsciiStrToLower(name.substr(name.find('_') + 1));
}

std::string CountText(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.2f %s", bytes, kUnits[unit]);
}

}  // namespace annulus
