#ifndef ANNULUS_PROTO_WIRE_PAYLOAD_H_
#define ANNULUS_PROTO_WIRE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "grpcpp/support/slice.h"

namespace annulus {

// Bytes of a tensor as a list of reference-counted slices. A gRPC message is read and written
// without a copy. Copying a Payload copies references. The bytes are immutable. An object is not
// thread-safe, but threads may share its slices.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::vector<grpc::Slice> slices);

  // Refers to `size` bytes at `data`. They must not change while any copy of `owner` lives: gRPC
  // may keep slices for a while after a call has ended.
  static Payload Shared(std::shared_ptr<const void> owner, const void* data, size_t size);
  // A copy of the bytes.
  static Payload Copied(const void* data, size_t size);
  // `size` new bytes, written by `fill`.
  static Payload Filled(size_t size, absl::FunctionRef<void(std::byte*)> fill);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<grpc::Slice>& slices() const { return slices_; }

  void Append(const Payload& other);
  // Bytes [offset, offset + size), which must exist. References, no copy.
  Payload Sub(size_t offset, size_t size) const;
  // Copies bytes [offset, offset + size), which must exist.
  void CopyTo(size_t offset, size_t size, void* target) const;
  uint32_t Crc32c() const;

 private:
  std::vector<grpc::Slice> slices_;  // No slice is empty.
  size_t size_ = 0;
};

// Reads a payload from beginning to end. The payload outlives the reader.
class PayloadReader {
 public:
  explicit PayloadReader(const Payload& payload) : slices_(payload.slices()) {}

  // The next `size` bytes, which must exist: Read copies them, Take appends references to `target`,
  // Skip passes over them.
  void Read(void* target, size_t size);
  void Take(size_t size, Payload* target);
  void Skip(size_t size);

 private:
  // Calls fn(slice, begin, end) for each piece of the next `size` bytes.
  void Advance(size_t size, absl::FunctionRef<void(const grpc::Slice&, size_t, size_t)> fn);

  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;  // In slices_[slice_].
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_PAYLOAD_H_
