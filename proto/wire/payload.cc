#include "proto/wire/payload.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "proto/wire/crc32c.h"

namespace annulus {

Payload::Payload(std::vector<grpc::Slice> slices) : slices_(std::move(slices)) {
  slices_.erase(std::remove_if(slices_.begin(), slices_.end(),
                               [](const grpc::Slice& slice) { return slice.size() == 0; }),
                slices_.end());
  for (const grpc::Slice& slice : slices_) size_ += slice.size();
}

Payload Payload::Shared(std::shared_ptr<const void> owner, const void* data, size_t size) {
  if (size == 0) return Payload();
  auto* keep = new std::shared_ptr<const void>(std::move(owner));
  std::vector<grpc::Slice> slices;
  slices.emplace_back(
      const_cast<void*>(data), size,
      [](void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }, keep);
  return Payload(std::move(slices));
}

Payload Payload::Copied(const void* data, size_t size) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(data, size);
  return Payload(std::move(slices));
}

Payload Payload::Filled(size_t size, absl::FunctionRef<void(std::byte*)> fill) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(size);
  fill(reinterpret_cast<std::byte*>(const_cast<uint8_t*>(slices.back().begin())));
  return Payload(std::move(slices));
}

void Payload::Append(const Payload& other) {
  slices_.insert(slices_.end(), other.slices_.begin(), other.slices_.end());
  size_ += other.size_;
}

Payload Payload::Sub(size_t offset, size_t size) const {
  PayloadReader reader(*this);
  reader.Skip(offset);
  Payload part;
  reader.Take(size, &part);
  return part;
}

void Payload::CopyTo(size_t offset, size_t size, void* target) const {
  PayloadReader reader(*this);
  reader.Skip(offset);
  reader.Read(target, size);
}

uint32_t Payload::Crc32c() const {
  uint32_t crc = 0;
  for (const grpc::Slice& slice : slices_) crc = ExtendCrc32c(crc, slice.begin(), slice.size());
  return crc;
}

void PayloadReader::Advance(size_t size,
                            absl::FunctionRef<void(const grpc::Slice&, size_t, size_t)> fn) {
  while (size > 0) {
    assert(slice_ < slices_.size());
    const grpc::Slice& slice = slices_[slice_];
    const size_t part = std::min(size, slice.size() - offset_);
    fn(slice, offset_, offset_ + part);
    size -= part;
    offset_ += part;
    if (offset_ == slice.size()) {
      ++slice_;
      offset_ = 0;
    }
  }
}

void PayloadReader::Read(void* target, size_t size) {
  auto* bytes = static_cast<uint8_t*>(target);
  Advance(size, [&bytes](const grpc::Slice& slice, size_t begin, size_t end) {
    std::memcpy(bytes, slice.begin() + begin, end - begin);
    bytes += end - begin;
  });
}

void PayloadReader::Take(size_t size, Payload* target) {
  std::vector<grpc::Slice> slices;
  Advance(size, [&slices](const grpc::Slice& slice, size_t begin, size_t end) {
    slices.push_back(slice.sub(begin, end));
  });
  target->Append(Payload(std::move(slices)));
}

void PayloadReader::Skip(size_t size) {
  Advance(size, [](const grpc::Slice&, size_t, size_t) {});
}

}  // namespace annulus
