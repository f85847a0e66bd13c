#include "proto/rpc/request_fields.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "proto/rpc/message_limits.h"
#include "proto/wire/convert.h"
#include "proto/wire/tensor_stream.h"
#include "proto/wire/wire_reader.h"

namespace annulus {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormat;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// True if the wire type fits the field. protobuf keeps a field of another wire type as an unknown
// field.
bool IsOfItsType(const FieldDescriptor* field, WireFormatLite::WireType type) {
  return field != nullptr && type == WireFormat::WireTypeForFieldType(field->type());
}

class PartCounter {
 public:
  explicit PartCounter(CodedInputStream* wire) : wire_(wire) {}

  // Reads until the end of the message, an error, or the limit.
  void Read(const Descriptor* type, int depth) {
    while (const uint32_t tag = wire_->ReadTag()) {
      const FieldDescriptor* const field =
          type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!ReadField(tag, field, depth) || parts_ > kMaxRequestParts) return;
    }
  }
  int64_t parts() const { return parts_; }
  bool has_group() const { return has_group_; }

 private:
  bool ReadField(uint32_t tag, const FieldDescriptor* field, int depth) {
    const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_START_GROUP) {
      has_group_ = true;
      return false;
    }
    const bool has_length = type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (has_length || !IsOfItsType(field, type)) ++parts_;
    if (!has_length || field == nullptr || field->message_type() == nullptr) {
      return WireFormatLite::SkipField(wire_, tag);
    }
    uint32_t bytes = 0;
    if (depth == 0 || !wire_->ReadVarint32(&bytes)) return false;
    const CodedInputStream::Limit outside = wire_->PushLimit(static_cast<int>(bytes));
    Read(field->message_type(), depth - 1);
    const bool whole = wire_->BytesUntilLimit() == 0;
    wire_->PopLimit(outside);
    return whole;
  }

  CodedInputStream* const wire_;
  int64_t parts_ = 0;
  bool has_group_ = false;
};

// gRPC owns `arrived`, and it is not a constant there.
void LetGo(const grpc::ByteBuffer* arrived) { const_cast<grpc::ByteBuffer*>(arrived)->Clear(); }

}  // namespace

absl::Status CheckRequestParts(const grpc::ByteBuffer& message, const Descriptor* type) {
  constexpr int kDepth = 100;  // Same as protobuf's limit.
  grpc::ByteBuffer reference = message;
  if (!reference.Valid()) return absl::OkStatus();
  grpc::ProtoBufferReader reader(&reference);
  CodedInputStream wire(&reader);
  PartCounter counter(&wire);
  counter.Read(type, kDepth);
  if (counter.has_group()) return MalformedMessage("it has a group");
  if (counter.parts() <= kMaxRequestParts) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the request has more than ", kMaxRequestParts, " parts"),
                   {"LIMIT_EXCEEDED", {}, {}, {}});
}

absl::Status ParseRequest(const grpc::ByteBuffer& message, google::protobuf::Message* request) {
  RETURN_IF_ERROR(CheckRequestParts(message, request->GetDescriptor()));
  return DecodeProto(message, request);
}

absl::Status TakeRequest(const grpc::ByteBuffer* arrived, google::protobuf::Message* request) {
  const absl::Status status = ParseRequest(*arrived, request);
  LetGo(arrived);
  return status;
}

absl::Status TakeQuestion(const grpc::ByteBuffer* arrived, google::protobuf::Message* question) {
  const absl::Status status = DecodeSmallProto(*arrived, question, kMaxQuestionBytes);
  LetGo(arrived);
  RETURN_IF_ERROR(status);
  return CheckFieldsKnown(*question, "");
}

}  // namespace annulus
