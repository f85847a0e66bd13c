#ifndef ANNULUS_PROTO_WIRE_CONVERT_H_
#define ANNULUS_PROTO_WIRE_CONVERT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "attention/sharding/row_map.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/spec.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"

namespace annulus {

// Conversion between messages and values. These functions check only that fields and enum values
// are known: INVALID_ARGUMENT / UNKNOWN_FIELD or UNKNOWN_ENUM, with the field's path below `path`
// ("spec", "execution"). An unknown field is named by its number ("spec.masks[1].99"). Validate()
// checks the values.
absl::StatusOr<AttentionSpec> SpecFromProto(const v1::AttentionSpec& proto, absl::string_view path);
v1::AttentionSpec SpecToProto(const AttentionSpec& spec);

absl::StatusOr<Execution> ExecutionFromProto(const v1::Execution& proto, absl::string_view path);
v1::Execution ExecutionToProto(const Execution& execution);

// INVALID_ARGUMENT / UNKNOWN_FIELD if the message itself has an unknown field. Submessages are not
// checked. An option of a newer client must not be dropped in silence. `path` may be empty.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message, absl::string_view path);
// Same for each message; the path of message i is `path`[i].
template <typename Message>
absl::Status CheckEachKnown(const google::protobuf::RepeatedPtrField<Message>& messages,
                            absl::string_view path) {
  for (int i = 0; i < messages.size(); ++i) {
    if (CheckFieldsKnown(messages[i], "").ok()) continue;
    return CheckFieldsKnown(messages[i], absl::StrCat(path, "[", i, "]"));
  }
  return absl::OkStatus();
}

// The plan options of a resolved execution (no kAuto, world_size > 0).
PlanOptions PlanOptionsOf(const Execution& execution, int64_t granule);

void RowMapToProto(const RowMap& map, google::protobuf::RepeatedPtrField<v1::RowRange>* ranges);
// INVALID_ARGUMENT / SHAPE_MISMATCH unless the ranges are positive, increasing and disjoint.
absl::StatusOr<RowMap> RowMapFromProto(
    const google::protobuf::RepeatedPtrField<v1::RowRange>& ranges);

// Converts an error with its details. OK corresponds to code 0.
v1::Error ErrorToProto(const absl::Status& status);
absl::Status ErrorFromProto(const v1::Error& error);

google::protobuf::Duration DurationToProto(absl::Duration duration);
absl::Duration DurationFromProto(const google::protobuf::Duration& duration);
google::protobuf::Timestamp TimeToProto(absl::Time time);
absl::Time TimeFromProto(const google::protobuf::Timestamp& timestamp);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CONVERT_H_
