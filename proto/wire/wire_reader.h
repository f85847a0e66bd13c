#ifndef ANNULUS_PROTO_WIRE_WIRE_READER_H_
#define ANNULUS_PROTO_WIRE_WIRE_READER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/wire/payload.h"

namespace annulus {

// Reads the protobuf wire format over slices, for messages whose `bytes` must not be copied. Every
// method checks its bounds: invalid bytes give INVALID_ARGUMENT / MALFORMED_MESSAGE, and nothing is
// read past the end. The payload outlives the reader.
class WireReader {
 public:
  enum Type : int { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  struct Tag {
    int field = 0;
    Type type = kVarint;
  };

  explicit WireReader(const Payload& payload) : reader_(payload), left_(payload.size()) {}

  bool AtEnd() const { return left_ == 0; }
  absl::Status ReadTag(Tag* tag);
  absl::Status ReadVarint(uint64_t* value);
  absl::Status ReadFixed32(uint32_t* value);
  // A length, and as many bytes as references.
  absl::Status ReadBytes(Payload* value);
  absl::Status Skip(Type type);

 private:
  // Subtracts `size` bytes from what is left.
  absl::Status Claim(uint64_t size);

  PayloadReader reader_;
  uint64_t left_;
};

// Returns INVALID_ARGUMENT / MALFORMED_MESSAGE.
absl::Status MalformedMessage(absl::string_view what);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_WIRE_READER_H_
