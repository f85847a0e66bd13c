#ifndef ANNULUS_PROTO_WIRE_PAYLOAD_H_
#define ANNULUS_PROTO_WIRE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "grpcpp/support/slice.h"

namespace annulus {

// Bytes of a tensor as a list of reference-counted slices: what a gRPC message brings and takes
// without a copy. Copying a Payload copies references. Immutable bytes; an object is not
// thread-safe, but its slices may be shared between threads.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::vector<grpc::Slice> slices);

  // Refers to `size` bytes at `data`, which stay unchanged while any copy of `owner` lives: gRPC
  // may keep slices for a while after a call has ended.
  static Payload Shared(std::shared_ptr<const void> owner, const void* data, size_t size);
  // Its own copy.
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
  std::vector<grpc::Slice> slices_;  // None is empty.
  size_t size_ = 0;
};

// Reads a payload from its beginning to its end. The payload outlives the reader.
class PayloadReader {
 public:
  explicit PayloadReader(const Payload& payload) : slices_(payload.slices()) {}

  // The next `size` bytes, which must exist: copied, appended to `target` as references, passed
  // over.
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
