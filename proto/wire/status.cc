#include "proto/wire/status.h"

#include <string>

#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/wire/convert.h"
#include "proto/wire/cut_text.h"

namespace annulus {
namespace {

// Headers of a response are limited to 8 KiB by default. They hold the message twice: as it is, and
// in the details, to which base64 adds a third.
constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxTextBytes = 256;
constexpr size_t kMaxInfoBytes = 2048;
constexpr size_t kMaxFieldsBytes = 1536;

// In a header, a character that is not printable ASCII takes three bytes.
std::string CutMessage(absl::string_view text) {
  size_t bytes = 0, limit = 0;
  for (; limit < text.size(); ++limit) {
    const char c = text[limit];
    bytes += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
    if (bytes > kMaxMessageBytes) break;
  }
  return CutText(text, limit);
}

void AddDetails(const ErrorDetail& detail, google::rpc::Status* rich) {
  google::rpc::ErrorInfo info;
  info.set_reason(detail.reason);
  info.set_domain(kErrorDomain);
  for (const auto& [key, value] : detail.metadata) {
    const std::string name = CutText(key, kMaxTextBytes);
    (*info.mutable_metadata())[name] = CutText(value, kMaxTextBytes);
    if (info.ByteSizeLong() <= kMaxInfoBytes) continue;
    info.mutable_metadata()->erase(name);
    break;
  }
  rich->add_details()->PackFrom(info);
  if (!detail.fields.empty()) {
    google::rpc::BadRequest bad;
    for (const FieldViolation& violation : detail.fields) {
      if (bad.field_violations_size() == 16) break;
      auto* out = bad.add_field_violations();
      out->set_field(CutText(violation.field, kMaxTextBytes));
      out->set_description(CutText(violation.description, kMaxTextBytes));
    }
    while (bad.ByteSizeLong() > kMaxFieldsBytes && bad.field_violations_size() > 1) {
      bad.mutable_field_violations()->RemoveLast();
    }
    rich->add_details()->PackFrom(bad);
  }
  if (detail.retry_after) {
    google::rpc::RetryInfo retry;
    *retry.mutable_retry_delay() = DurationToProto(*detail.retry_after);
    rich->add_details()->PackFrom(retry);
  }
}

ErrorDetail DetailsFrom(const google::rpc::Status& rich) {
  ErrorDetail detail;
  for (const auto& any : rich.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info) && info.domain() == kErrorDomain) {
      detail.reason = info.reason();
      detail.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (any.Is<google::rpc::BadRequest>() && any.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations()) {
        detail.fields.push_back({violation.field(), violation.description()});
      }
    } else if (any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
      detail.retry_after = DurationFromProto(retry.retry_delay());
    }
  }
  return detail;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = CutMessage(status.message());
  ErrorDetail detail = DetailOf(status);
  detail.reason = ReasonOrCode(status);
  const auto code = static_cast<grpc::StatusCode>(status.code());
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(code));
  rich.set_message(message);
  AddDetails(detail, &rich);
  return grpc::Status(code, message, rich.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status rich;
  ErrorDetail detail;
  if (rich.ParseFromString(status.error_details())) detail = DetailsFrom(rich);
  return MakeError(static_cast<absl::StatusCode>(status.error_code()), status.error_message(),
                   detail);
}

}  // namespace annulus
