#include "base/error.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr absl::string_view kPayloadUrl = "annulus.v1/ErrorDetail";
constexpr size_t kMaxReasonBytes = 63;
constexpr size_t kMaxFields = 16;

// The payload never leaves the process. It is a list of entries: tag, length in 4 bytes, bytes.
enum Tag : char {
  kReason = 'r',
  kKey = 'k',
  kValue = 'v',
  kField = 'f',
  kText = 't',
  kRetry = 'a'
};

void Append(Tag tag, absl::string_view bytes, std::string* out) {
  const uint32_t size = static_cast<uint32_t>(bytes.size());
  char header[5] = {tag};
  std::memcpy(header + 1, &size, sizeof(size));
  out->append(header, sizeof(header));
  out->append(bytes.data(), bytes.size());
}

std::string Encode(const ErrorDetail& detail) {
  std::string out;
  Append(kReason, absl::string_view(detail.reason).substr(0, kMaxReasonBytes), &out);
  for (const auto& [key, value] : detail.metadata) {
    Append(kKey, key, &out);
    Append(kValue, value, &out);
  }
  for (size_t i = 0; i < detail.fields.size() && i < kMaxFields; ++i) {
    Append(kField, detail.fields[i].field, &out);
    Append(kText, detail.fields[i].description, &out);
  }
  if (detail.retry_after) Append(kRetry, absl::FormatDuration(*detail.retry_after), &out);
  return out;
}

void AddEntry(char tag, std::string bytes, std::string* key, ErrorDetail* detail) {
  switch (tag) {
    case kReason:
      detail->reason = std::move(bytes);
      break;
    case kKey:
      *key = std::move(bytes);
      break;
    case kValue:
      detail->metadata[*key] = std::move(bytes);
      break;
    case kField:
      detail->fields.push_back({std::move(bytes), ""});
      break;
    case kText:
      if (!detail->fields.empty()) detail->fields.back().description = std::move(bytes);
      break;
    case kRetry: {
      absl::Duration wait;
      if (absl::ParseDuration(bytes, &wait)) detail->retry_after = wait;
      break;
    }
  }
}

ErrorDetail Decode(absl::string_view bytes) {
  ErrorDetail detail;
  std::string key;
  while (bytes.size() >= 5) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + 1, sizeof(size));
    if (bytes.size() - 5 < size) break;
    AddEntry(bytes[0], std::string(bytes.substr(5, size)), &key, &detail);
    bytes.remove_prefix(5 + size);
  }
  return detail;
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, absl::string_view message,
                       const ErrorDetail& detail) {
  absl::Status status(code, message);
  status.SetPayload(kPayloadUrl, absl::Cord(Encode(detail)));
  return status;
}

absl::Status InvalidField(absl::string_view reason, absl::string_view field,
                          absl::string_view description) {
  ErrorDetail detail;
  detail.reason = std::string(reason);
  detail.fields.push_back({std::string(field), std::string(description)});
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(field, ": ", description),
                   detail);
}

ErrorDetail DetailOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  return payload ? Decode(std::string(*payload)) : ErrorDetail();
}

std::string ReasonOrCode(const absl::Status& status) {
  const std::string reason = DetailOf(status).reason;
  return reason.empty() ? absl::StatusCodeToString(status.code()) : reason;
}

std::string ErrorText(const absl::Status& status) {
  const std::string reason = DetailOf(status).reason;
  return absl::StrCat(absl::StatusCodeToString(status.code()), reason.empty() ? "" : " / ", reason,
                      ": ", status.message());
}

}  // namespace annulus
