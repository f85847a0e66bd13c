#include "proto/wire/tensor_stream.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "proto/wire/convert.h"
#include "proto/wire/field_paths.h"
#include "proto/wire/wire_reader.h"

namespace annulus {
namespace {

// Field numbers of annulus.v1.Chunk.
enum ChunkField : int {
  kTensor = 1,
  kRowBegin,
  kRowCount,
  kHeadBegin,
  kHeadCount,
  kCrc,
  kData = 15
};

// Fields of a chunk, including unknown ones.
constexpr int kMaxChunkFields = 64;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendTag(int field, WireReader::Type type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, out);
}

void AppendNumber(int field, int64_t value, std::string* out) {
  if (value == 0) return;
  AppendTag(field, WireReader::kVarint, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

// The whole message before the payload's bytes.
std::string WireHeader(const TensorChunk& chunk) {
  std::string header;
  AppendNumber(kTensor, static_cast<int64_t>(chunk.tensor), &header);
  AppendNumber(kRowBegin, chunk.row_begin, &header);
  AppendNumber(kRowCount, chunk.row_count, &header);
  AppendNumber(kHeadBegin, chunk.head_begin, &header);
  AppendNumber(kHeadCount, chunk.head_count, &header);
  if (chunk.crc32c.has_value()) {
    AppendTag(kCrc, WireReader::kFixed32, &header);
    for (int shift = 0; shift < 32; shift += 8) {
      header.push_back(static_cast<char>(*chunk.crc32c >> shift));
    }
  }
  AppendTag(kData, WireReader::kBytes, &header);
  AppendVarint(chunk.data.size(), &header);
  return header;
}

absl::Status ChunkError(absl::string_view reason, absl::string_view field, absl::string_view what) {
  return InvalidField(reason, absl::StrCat("chunk.", field), what);
}

WireReader::Type TypeOfChunkField(int field) {
  if (field == kCrc) return WireReader::kFixed32;
  return field == kData ? WireReader::kBytes : WireReader::kVarint;
}

struct RawChunk {
  uint64_t number[kHeadCount + 1] = {};  // By field number.
  std::optional<uint32_t> crc;
  Payload data;
  int unknown_field = 0;
};

absl::StatusOr<RawChunk> ReadRawChunk(const Payload& payload) {
  RawChunk raw;
  WireReader reader(payload);
  for (int fields = 0; !reader.AtEnd(); ++fields) {
    if (fields == kMaxChunkFields) return MalformedMessage("a chunk has too many fields");
    WireReader::Tag tag;
    RETURN_IF_ERROR(reader.ReadTag(&tag));
    const bool known = tag.field <= kCrc || tag.field == kData;
    if (!known) {
      raw.unknown_field = tag.field;
      RETURN_IF_ERROR(reader.Skip(tag.type));
      continue;
    }
    if (tag.type != TypeOfChunkField(tag.field)) {
      return MalformedMessage(absl::StrCat("field ", tag.field, " of a chunk has another type"));
    }
    if (tag.field == kData) {
      RETURN_IF_ERROR(reader.ReadBytes(&raw.data));
    } else if (tag.field == kCrc) {
      RETURN_IF_ERROR(reader.ReadFixed32(&raw.crc.emplace()));
    } else {
      RETURN_IF_ERROR(reader.ReadVarint(&raw.number[tag.field]));
    }
  }
  return raw;
}

// The same error with the chunk's index in its message.
absl::Status Numbered(const absl::Status& status, size_t index) {
  return WithFieldPaths(status, [index](absl::string_view path) {
    return absl::StrCat("chunks[", index, "]", absl::StripPrefix(path, "chunk"));
  });
}

absl::StatusOr<TensorChunk> ParseChunk(const Payload& payload) {
  ASSIGN_OR_RETURN(RawChunk raw, ReadRawChunk(payload));
  const auto tensor = static_cast<int32_t>(raw.number[kTensor]);
  if (tensor < 1 || tensor > static_cast<int32_t>(kLastTensor)) {
    return ChunkError("UNKNOWN_TENSOR", "tensor",
                      absl::StrCat(tensor, " is not the number of a tensor"));
  }
  TensorChunk chunk;
  chunk.tensor = static_cast<TensorId>(tensor);
  chunk.row_begin = static_cast<int64_t>(raw.number[kRowBegin]);
  chunk.row_count = static_cast<int64_t>(raw.number[kRowCount]);
  chunk.head_begin = static_cast<int32_t>(raw.number[kHeadBegin]);
  chunk.head_count = static_cast<int32_t>(raw.number[kHeadCount]);
  chunk.crc32c = raw.crc;
  chunk.data = std::move(raw.data);
  chunk.unknown_field = raw.unknown_field;
  if (chunk.row_begin < 0)
    return ChunkError("CHUNK_OUT_OF_RANGE", "row_begin", "must not be negative");
  if (chunk.row_count < 1)
    return ChunkError("CHUNK_OUT_OF_RANGE", "row_count", "must be at least 1");
  if (chunk.head_begin < 0)
    return ChunkError("CHUNK_OUT_OF_RANGE", "head_begin", "must not be negative");
  if (chunk.head_count < 0)
    return ChunkError("CHUNK_OUT_OF_RANGE", "head_count", "must not be negative");
  if (chunk.data.size() > kMaxChunkBytes) {
    return ChunkError("LIMIT_EXCEEDED", "data",
                      absl::StrCat("has ", chunk.data.size(), " bytes, at most ", kMaxChunkBytes,
                                   " are allowed"));
  }
  return chunk;
}

absl::StatusOr<Payload> PayloadOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (message.Valid() && !message.Dump(&slices).ok()) {
    return MalformedMessage("its compressed data is invalid");
  }
  return Payload(std::move(slices));
}

// All bytes of a message before a chunk's payload: the header of its field, then the chunk's.
std::string Opening(const TensorChunk& chunk) {
  const std::string inner = WireHeader(chunk);
  std::string header;
  AppendTag(kChunksField, WireReader::kBytes, &header);
  AppendVarint(inner.size() + chunk.data.size(), &header);
  return header + inner;
}

// Appends a field unchanged, for protobuf to parse.
void AppendField(int field, const Payload& value, std::string* out) {
  AppendTag(field, WireReader::kBytes, out);
  AppendVarint(value.size(), out);
  const size_t begin = out->size();
  out->resize(begin + value.size());
  value.CopyTo(0, value.size(), out->data() + begin);
}

absl::Status CheckRest(int64_t bytes, int64_t most) {
  if (bytes <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("a message has more than ", most, " bytes outside its chunks"),
                   {"LIMIT_EXCEEDED", {}, {}, {}});
}

absl::Status CheckMessage(const std::vector<TensorChunk>& chunks) {
  int64_t bytes = 0;
  for (const TensorChunk& chunk : chunks) bytes += static_cast<int64_t>(chunk.data.size());
  if (chunks.size() <= kMaxMessageChunks && bytes <= kMaxChunkBytes) return absl::OkStatus();
  return InvalidField("LIMIT_EXCEEDED", "chunks",
                      absl::StrCat("a message has ", chunks.size(), " chunks with ", bytes,
                                   " bytes; the limits are ", kMaxMessageChunks, " chunks and ",
                                   kMaxChunkBytes, " bytes"));
}

}  // namespace

grpc::ByteBuffer EncodeChunks(absl::Span<const TensorChunk> chunks,
                              const google::protobuf::MessageLite* rest) {
  std::vector<grpc::Slice> slices;
  if (rest != nullptr) slices.emplace_back(rest->SerializeAsString());
  for (const TensorChunk& chunk : chunks) {
    slices.emplace_back(Opening(chunk));
    slices.insert(slices.end(), chunk.data.slices().begin(), chunk.data.slices().end());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<std::vector<TensorChunk>> DecodeChunks(const grpc::ByteBuffer& message,
                                                      google::protobuf::MessageLite* rest,
                                                      int64_t max_rest_bytes) {
  ASSIGN_OR_RETURN(Payload payload, PayloadOf(message));
  std::vector<TensorChunk> chunks;
  std::string others;
  WireReader reader(payload);
  while (!reader.AtEnd()) {
    RETURN_IF_ERROR(CheckRest(static_cast<int64_t>(others.size()), max_rest_bytes));
    WireReader::Tag tag;
    RETURN_IF_ERROR(reader.ReadTag(&tag));
    if (tag.type == WireReader::kVarint) {
      uint64_t number = 0;
      RETURN_IF_ERROR(reader.ReadVarint(&number));
      AppendTag(tag.field, WireReader::kVarint, &others);
      AppendVarint(number, &others);
      continue;
    }
    if (tag.type != WireReader::kBytes) {  // These messages have no such field: it is unknown.
      RETURN_IF_ERROR(reader.Skip(tag.type));
      AppendTag(tag.field, WireReader::kVarint, &others);
      AppendVarint(0, &others);
      continue;
    }
    Payload value;
    RETURN_IF_ERROR(reader.ReadBytes(&value));
    if (tag.field != kChunksField) {
      const auto bytes = static_cast<int64_t>(value.size());
      RETURN_IF_ERROR(CheckRest(bytes, max_rest_bytes));
      AppendField(tag.field, value, &others);
      continue;
    }
    absl::StatusOr<TensorChunk> chunk = ParseChunk(value);
    if (!chunk.ok()) return Numbered(chunk.status(), chunks.size());
    chunks.push_back(*std::move(chunk));
    RETURN_IF_ERROR(CheckMessage(chunks));
  }
  if (!rest->ParseFromString(others)) return MalformedMessage("its fields cannot be parsed");
  return chunks;
}

absl::Status CheckKnown(const google::protobuf::Message& rest,
                        absl::Span<const TensorChunk> chunks) {
  RETURN_IF_ERROR(CheckFieldsKnown(rest, ""));
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i].unknown_field == 0) continue;
    return InvalidField("UNKNOWN_FIELD", absl::StrCat("chunks[", i, "].", chunks[i].unknown_field),
                        "this version has no such field");
  }
  return absl::OkStatus();
}

absl::Status CheckChunk(const TensorInfo& tensor, int64_t rows, TensorChunk* chunk) {
  return CheckChunkHeader(tensor, rows, static_cast<int64_t>(chunk->data.size()), chunk);
}

absl::Status VerifyCrc(const TensorChunk& chunk) {
  if (!chunk.crc32c.has_value()) return absl::OkStatus();
  return CheckChunkCrc(chunk, chunk.data.Crc32c());
}

grpc::ByteBuffer EncodeProto(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status DecodeSmallProto(const grpc::ByteBuffer& buffer,
                              google::protobuf::MessageLite* message, int64_t max_bytes) {
  const int64_t bytes = buffer.Valid() ? static_cast<int64_t>(buffer.Length()) : 0;
  if (bytes <= max_bytes) return DecodeProto(buffer, message);
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("a message of ", bytes, " bytes is above the limit of ", max_bytes),
                   {"LIMIT_EXCEEDED", {}, {}, {}});
}

absl::Status DecodeProto(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  message->Clear();
  grpc::ByteBuffer reference = buffer;
  if (!reference.Valid()) return MalformedMessage("it is absent");
  grpc::ProtoBufferReader reader(&reference);
  if (!reader.status().ok() || !message->ParseFromZeroCopyStream(&reader)) {
    return MalformedMessage(absl::StrCat("it is not a valid ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace annulus
