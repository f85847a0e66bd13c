#include "proto/wire/wire_reader.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {

absl::Status MalformedMessage(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat("malformed message: ", what),
                   {"MALFORMED_MESSAGE", {}, {}, {}});
}

absl::Status WireReader::Claim(uint64_t size) {
  if (size > left_) return MalformedMessage("it ends inside a field");
  left_ -= size;
  return absl::OkStatus();
}

absl::Status WireReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    uint8_t byte = 0;
    RETURN_IF_ERROR(Claim(1));
    reader_.Read(&byte, 1);
    if (shift == 63 && byte > 1) return MalformedMessage("it has a number of more than 64 bits");
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return absl::OkStatus();
  }
  return MalformedMessage("it has a number of more than 10 bytes");
}

absl::Status WireReader::ReadTag(Tag* tag) {
  uint64_t value = 0;
  RETURN_IF_ERROR(ReadVarint(&value));
  const uint64_t field = value >> 3;
  if (field == 0 || field >= (uint64_t{1} << 29))
    return MalformedMessage("it has an impossible field number");
  tag->field = static_cast<int>(field);
  switch (value & 7) {
    case kVarint:
    case kFixed64:
    case kBytes:
    case kFixed32:
      tag->type = static_cast<Type>(value & 7);
      return absl::OkStatus();
    default:
      return MalformedMessage("it has an unknown wire type");
  }
}

absl::Status WireReader::ReadFixed32(uint32_t* value) {
  RETURN_IF_ERROR(Claim(4));
  uint8_t bytes[4];
  reader_.Read(bytes, 4);
  *value = 0;
  for (int i = 3; i >= 0; --i) *value = *value << 8 | bytes[i];
  return absl::OkStatus();
}

absl::Status WireReader::ReadBytes(Payload* value) {
  uint64_t size = 0;
  RETURN_IF_ERROR(ReadVarint(&size));
  RETURN_IF_ERROR(Claim(size));
  *value = Payload();
  reader_.Take(size, value);
  return absl::OkStatus();
}

absl::Status WireReader::Skip(Type type) {
  uint64_t size = 0;
  switch (type) {
    case kVarint:
      return ReadVarint(&size);
    case kFixed64:
      size = 8;
      break;
    case kFixed32:
      size = 4;
      break;
    case kBytes:
      RETURN_IF_ERROR(ReadVarint(&size));
      break;
  }
  RETURN_IF_ERROR(Claim(size));
  reader_.Skip(size);
  return absl::OkStatus();
}

}  // namespace annulus
