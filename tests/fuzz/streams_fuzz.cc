// Random bytes as messages of chunk streams and as safetensors files. A refusal has a code and a
// reason. Accepted views are inside the bytes, and a chunk that is written and read again is the
// same.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "annulus/v1/attention.pb.h"
#include "base/error.h"
#include "client/cli/safetensors/safetensors.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireReason(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument);
  Require(!DetailOf(status).reason.empty());
}

// The bytes in slices of at most `piece`.
grpc::ByteBuffer InSlices(const uint8_t* data, size_t size, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < size; at += piece) {
    slices.emplace_back(data + at, std::min(piece, size - at));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool Same(const TensorChunk& a, const TensorChunk& b) {
  return a.tensor == b.tensor && a.row_begin == b.row_begin && a.row_count == b.row_count &&
         a.head_begin == b.head_begin && a.head_count == b.head_count && a.crc32c == b.crc32c &&
         a.data.size() == b.data.size() && a.data.Crc32c() == b.data.Crc32c();
}

void CheckTensor(TensorChunk chunk, size_t message_bytes) {
  Require(chunk.data.size() <= message_bytes);
  v1::AttendRequest rest;
  const auto again = DecodeChunks(EncodeChunks({chunk}), &rest);
  Require(again.ok() && again->size() == 1 && Same(again->front(), chunk));
  TensorInfo tensor;
  tensor.id = chunk.tensor;
  tensor.heads = 4;
  tensor.dim = 8;
  tensor.dtype = DataType::kFp16;
  const absl::Status checked = CheckChunk(tensor, 100, &chunk);
  if (!checked.ok()) return RequireReason(checked);
  Require(chunk.row_begin + chunk.row_count <= 100);
  Require(chunk.head_begin + chunk.head_count <= 4);
  Require(static_cast<int64_t>(chunk.data.size()) == chunk.row_count * chunk.head_count * 16);
}

void Messages(const uint8_t* data, size_t size, size_t piece) {
  const grpc::ByteBuffer message = InSlices(data, size, piece);
  v1::AttendRequest rest;
  const auto chunks = DecodeChunks(message, &rest);
  if (!chunks.ok()) return RequireReason(chunks.status());
  Require(chunks->size() <= kMaxMessageChunks);
  for (const TensorChunk& chunk : *chunks) CheckTensor(chunk, size);
}

void Files(const uint8_t* data, size_t size) {
  int64_t before = 0;
  const auto tensors = ParseSafetensors({reinterpret_cast<const std::byte*>(data), size}, &before);
  if (!tensors.ok()) return RequireReason(tensors.status());
  int64_t end = 0;
  for (const SafetensorInfo& tensor : *tensors) {
    Require(tensor.begin == end && tensor.end >= tensor.begin);
    end = tensor.end;
  }
  Require(before + end == static_cast<int64_t>(size));
}

// Most random files fail in their first 8 bytes. Here these are correct, and the rest is the
// header.
void Headers(const uint8_t* data, size_t size) {
  const uint64_t length = size;
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file.append(reinterpret_cast<const char*>(data), size);
  Files(reinterpret_cast<const uint8_t*>(file.data()), file.size());
}

}  // namespace
}  // namespace annulus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] / 8;
  annulus::Messages(data + 1, size - 1, piece);
  annulus::Files(data + 1, size - 1);
  annulus::Headers(data + 1, size - 1);
  return 0;
}
