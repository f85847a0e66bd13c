#include "proto/wire/tensor_stream.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "annulus/v1/attention.pb.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string all;
  for (const grpc::Slice& slice : slices) all.append(slice.begin(), slice.end());
  return all;
}

// `bytes` in slices of at most `piece` bytes, as a transport may deliver them.
grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.data() + at, std::min(piece, bytes.size() - at));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<std::vector<TensorChunk>> Decode(const std::string& message, size_t piece) {
  v1::AttendRequest rest;
  return DecodeChunks(InPieces(message, piece), &rest);
}

// A message whose chunk is these bytes, valid or not.
std::string AsMessage(const std::string& chunk) {
  std::string step(1, kChunksField << 3 | 2);
  size_t size = chunk.size();
  for (; size >= 0x80; size >>= 7) step.push_back(static_cast<char>(size | 0x80));
  step.push_back(static_cast<char>(size));
  return step + chunk;
}

std::string Flat(const Payload& payload) {
  std::string all(payload.size(), '\0');
  payload.CopyTo(0, all.size(), all.data());
  return all;
}

std::string SomeBytes(size_t size) {
  std::string bytes(size, '\0');
  std::iota(bytes.begin(), bytes.end(), 1);
  return bytes;
}

TensorChunk SomeChunk(const std::string& bytes) {
  TensorChunk chunk;
  chunk.tensor = TensorId::kV;
  chunk.row_begin = int64_t{1} << 40;
  chunk.row_count = 300;
  chunk.head_begin = 2;
  chunk.head_count = 5;
  chunk.crc32c = Crc32c(bytes.data(), bytes.size());
  chunk.data = Payload::Copied(bytes.data(), bytes.size());
  return chunk;
}

v1::Chunk SomeProto(const std::string& bytes) {
  v1::Chunk proto;
  proto.set_tensor(v1::TENSOR_ID_V);
  proto.set_row_begin(int64_t{1} << 40);
  proto.set_row_count(300);
  proto.set_head_begin(2);
  proto.set_head_count(5);
  proto.set_crc32c(Crc32c(bytes.data(), bytes.size()));
  proto.set_data(bytes);
  return proto;
}

void ExpectSome(const TensorChunk& chunk, const std::string& bytes) {
  EXPECT_EQ(chunk.tensor, TensorId::kV);
  EXPECT_EQ(chunk.row_begin, int64_t{1} << 40);
  EXPECT_EQ(chunk.row_count, 300);
  EXPECT_EQ(chunk.head_begin, 2);
  EXPECT_EQ(chunk.head_count, 5);
  EXPECT_EQ(chunk.crc32c, Crc32c(bytes.data(), bytes.size()));
  EXPECT_EQ(Flat(chunk.data), bytes);
  EXPECT_TRUE(VerifyCrc(chunk).ok());
}

TEST(Crc32cTest, KnownVectors) {
  EXPECT_EQ(Crc32c("", 0), 0u);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  const std::string zeros(32, '\0'), ones(32, '\xff');  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(zeros.data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(ones.data(), 32), 0x62A8AB43u);
  EXPECT_EQ(ExtendCrc32c(Crc32c("1234", 4), "56789", 5), 0xE3069283u);
}

TEST(PayloadTest, PartsAreViewsOfTheWhole) {
  const std::string bytes = SomeBytes(1000);
  for (size_t piece : {1, 7, 100, 1000}) {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(InPieces(bytes, piece).Dump(&slices).ok());
    const Payload payload(slices);
    ASSERT_EQ(payload.size(), bytes.size());
    EXPECT_EQ(payload.Crc32c(), Crc32c(bytes.data(), bytes.size()));
    EXPECT_EQ(Flat(payload.Sub(3, 500)), bytes.substr(3, 500));
    EXPECT_EQ(Flat(payload.Sub(1000, 0)), "");
    PayloadReader reader(payload);
    std::string head(10, '\0');
    reader.Read(head.data(), 10);
    reader.Skip(90);
    Payload rest;
    reader.Take(900, &rest);
    EXPECT_EQ(head, bytes.substr(0, 10));
    EXPECT_EQ(Flat(rest), bytes.substr(100));
  }
}

TEST(PayloadTest, SharedBytesAreNotCopiedAndKeepTheirOwner) {
  auto owner = std::make_shared<std::string>(SomeBytes(4096));
  std::weak_ptr<std::string> watch = owner;
  Payload payload = Payload::Shared(owner, owner->data(), owner->size());
  EXPECT_EQ(static_cast<const void*>(payload.slices()[0].begin()), owner->data());
  owner.reset();
  Payload part = payload.Sub(4000, 96);
  payload = Payload();
  EXPECT_FALSE(watch.expired());
  part = Payload();
  EXPECT_TRUE(watch.expired());
}

TEST(TensorStreamTest, WhatWeWriteProtobufReads) {
  const std::string bytes = SomeBytes(2000);
  const TensorChunk chunk = SomeChunk(bytes);
  v1::PutShardRequest put;
  put.set_ticket("signed");
  v1::PutShardRequest read;
  ASSERT_TRUE(read.ParseFromString(Flat(EncodeChunks({chunk, chunk}, &put))));
  EXPECT_EQ(read.ticket(), "signed");
  ASSERT_EQ(read.chunks_size(), 2);
  for (const v1::Chunk& part : read.chunks()) {
    EXPECT_EQ(part.SerializeAsString(), SomeProto(bytes).SerializeAsString());
  }
  v1::AttendRequest request;
  ASSERT_TRUE(request.ParseFromString(Flat(EncodeChunks({chunk}))));
  EXPECT_FALSE(request.has_start());
  EXPECT_EQ(request.chunks(0).data(), bytes);
}

TEST(TensorStreamTest, WhatProtobufWritesWeReadInAnySlices) {
  const std::string bytes = SomeBytes(2000);
  v1::AttendResponse response;
  response.mutable_accepted()->set_job_id("job");
  *response.add_chunks() = SomeProto(bytes);
  *response.add_chunks() = SomeProto(bytes);
  response.mutable_done()->set_attempts(2);
  for (size_t piece : {1, 3, 64, 5000}) {
    v1::AttendResponse rest;
    auto chunks = DecodeChunks(InPieces(response.SerializeAsString(), piece), &rest);
    ASSERT_TRUE(chunks.ok()) << chunks.status();
    ASSERT_EQ(chunks->size(), 2u);
    for (const TensorChunk& chunk : *chunks) ExpectSome(chunk, bytes);
    EXPECT_EQ(rest.accepted().job_id(), "job");
    EXPECT_EQ(rest.done().attempts(), 2);
    EXPECT_EQ(rest.chunks_size(), 0);
  }
}

TEST(TensorStreamTest, FieldsComeInAnyOrderAndUnknownOnesAreTold) {
  const std::string bytes = SomeBytes(50);
  v1::Chunk data, rest = SomeProto("");
  data.set_data(bytes);
  rest.clear_data();
  rest.set_crc32c(Crc32c(bytes.data(), bytes.size()));
  const std::string text = std::string("\xa2\x06\x03", 3) + "abc";
  const std::string number = std::string("\xa0\x06\x01", 3);
  // Extra bytes of the message and of its chunk, and the field that is reported.
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"", "", ""},
      {text, "", "100"},
      {number, "", "100"},
      {std::string("\x08\x01", 2), "", "1"},  // `start` as a number.
      {"", text + number, "chunks[0].100"},
      {text + number, text, "100"}};
  for (const auto& [of_message, of_chunk, field] : cases) {
    const std::string chunk = data.SerializeAsString() + of_chunk + rest.SerializeAsString();
    v1::AttendRequest others;
    auto chunks = DecodeChunks(InPieces(of_message + AsMessage(chunk), 11), &others);
    ASSERT_TRUE(chunks.ok()) << chunks.status();
    ASSERT_EQ(chunks->size(), 1u);
    ExpectSome(chunks->front(), bytes);
    const ErrorDetail detail = DetailOf(CheckKnown(others, *chunks));
    EXPECT_EQ(detail.reason, field.empty() ? "" : "UNKNOWN_FIELD");
    if (field.empty()) continue;
    ASSERT_EQ(detail.fields.size(), 1u);
    EXPECT_EQ(detail.fields[0].field, field);
  }
}

TEST(TensorStreamTest, WhatIsNoChunkIsBoundedWhereItIsToBe) {
  const std::string chunk = AsMessage(SomeProto("abc").SerializeAsString());
  const std::string text("\x0a\x01x", 3), number("\xa0\x06\x07", 3);  // Fields 1 and 100.
  const auto reason = [&](const std::string& message, int64_t most) {
    v1::PutShardRequest rest;
    return DetailOf(DecodeChunks(InPieces(message, 100), &rest, most).status()).reason;
  };
  EXPECT_EQ(reason(chunk + text + number, 6), "");
  EXPECT_EQ(reason(text + text + text + chunk, 6), "LIMIT_EXCEEDED");
  EXPECT_EQ(reason(number + number + number + chunk, 6), "LIMIT_EXCEEDED");
  EXPECT_EQ(reason(std::string("\x0a\x07", 2) + "1234567", 6), "LIMIT_EXCEEDED");
  std::string fields = SomeProto("abc").SerializeAsString();
  while (fields.size() < 300) fields += number;
  EXPECT_EQ(reason(AsMessage(fields), 6), "MALFORMED_MESSAGE");
}

TEST(TensorStreamTest, ASmallMessageIsNotReadWhereItIsLarge) {
  v1::PutShardRequest request;
  request.set_ticket(std::string(kMaxTicketMessageBytes - 10, 'x'));
  EXPECT_TRUE(DecodeSmallProto(EncodeProto(request), &request).ok());
  request.set_ticket(std::string(kMaxTicketMessageBytes, 'x'));
  EXPECT_EQ(DetailOf(DecodeSmallProto(EncodeProto(request), &request)).reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(DetailOf(DecodeSmallProto(grpc::ByteBuffer(), &request)).reason, "MALFORMED_MESSAGE");
}

TEST(TensorStreamTest, AMessageHasABoundedNumberOfChunksAndBytes) {
  const std::string small = AsMessage(SomeProto("abc").SerializeAsString());
  std::string many;
  for (size_t i = 0; i < kMaxMessageChunks; ++i) many += small;
  EXPECT_TRUE(Decode(many, 100).ok());
  EXPECT_EQ(DetailOf(Decode(many + small, 100).status()).reason, "LIMIT_EXCEEDED");
  const std::string half =
      AsMessage(SomeProto(std::string(kMaxChunkBytes / 2, 'x')).SerializeAsString());
  EXPECT_TRUE(Decode(half + half, 5000).ok());
  EXPECT_EQ(DetailOf(Decode(half + small + half, 5000).status()).reason, "LIMIT_EXCEEDED");
}

std::string ReasonOf(const std::string& chunk) {
  const auto chunks = Decode(AsMessage(chunk), 16);
  if (chunks.ok()) return "OK";
  EXPECT_EQ(chunks.status().code(), absl::StatusCode::kInvalidArgument);
  return DetailOf(chunks.status()).reason;
}

TEST(TensorStreamTest, RefusesWhatIsNoChunk) {
  v1::Chunk proto = SomeProto("abc");
  EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "OK");
  for (int bad : {0, v1::TensorId_MAX + 1, -1}) {
    proto.set_tensor(static_cast<v1::TensorId>(bad));
    EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "UNKNOWN_TENSOR") << bad;
  }
  proto = SomeProto("abc");
  proto.set_row_begin(-1);
  EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "CHUNK_OUT_OF_RANGE");
  proto = SomeProto("abc");
  proto.set_row_count(0);
  EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "CHUNK_OUT_OF_RANGE");
  proto = SomeProto(std::string(kMaxChunkBytes, 'x'));
  EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "OK");
  proto = SomeProto(std::string(kMaxChunkBytes + 1, 'x'));
  EXPECT_EQ(ReasonOf(proto.SerializeAsString()), "LIMIT_EXCEEDED");
  EXPECT_EQ(ReasonOf(std::string("\x0c", 1)), "MALFORMED_MESSAGE");                  // a group
  EXPECT_EQ(ReasonOf(std::string("\x00\x01", 2)), "MALFORMED_MESSAGE");              // field 0
  EXPECT_EQ(ReasonOf(std::string("\x0d\x01\x00\x00\x00", 5)), "MALFORMED_MESSAGE");  // wrong type
  EXPECT_EQ(ReasonOf(std::string(11, '\xff')), "MALFORMED_MESSAGE");  // endless number
  EXPECT_EQ(ReasonOf(std::string("\x7a\xff\xff\xff\xff\x0f", 6)), "MALFORMED_MESSAGE");  // length
}

TEST(TensorStreamTest, RefusesOtherFieldsThatDoNotParse) {
  EXPECT_EQ(DetailOf(Decode("\x0a\x02\x0a\x05", 4).status()).reason, "MALFORMED_MESSAGE");
}

TEST(TensorStreamTest, EveryTruncationAndManyMutationsEndCleanly) {
  const uint32_t seed = 20240611;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  v1::AttendRequest request;
  *request.add_chunks() = SomeProto(SomeBytes(60));
  const std::string good = request.SerializeAsString();
  for (size_t size = 1; size < good.size(); ++size) {
    EXPECT_FALSE(Decode(good.substr(0, size), 5).ok()) << size;
  }
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int flips = 1 + random() % 3; flips > 0; --flips) bad[random() % bad.size()] = random();
    const auto chunks = Decode(bad, 1 + random() % 20);
    EXPECT_NE(chunks.ok(), !DetailOf(chunks.status()).reason.empty());
    if (!chunks.ok()) continue;
    for (const TensorChunk& chunk : *chunks) EXPECT_LE(chunk.data.size(), bad.size());
  }
}

TEST(TensorStreamTest, ChunksAreCheckedAgainstTheirTensor) {
  TensorInfo tensor;
  tensor.id = TensorId::kV;
  tensor.heads = 8;
  tensor.dim = 4;
  tensor.dtype = DataType::kFp16;
  const auto reason = [&](int64_t begin, int64_t count, int32_t head, int32_t heads, size_t bytes) {
    TensorChunk chunk;
    chunk.row_begin = begin;
    chunk.row_count = count;
    chunk.head_begin = head;
    chunk.head_count = heads;
    const std::string data(bytes, 'x');
    chunk.data = Payload::Copied(data.data(), data.size());
    absl::Status status = CheckChunk(tensor, 10, &chunk);
    EXPECT_TRUE(!status.ok() || chunk.head_count >= 1);
    return status.ok() ? "OK" : DetailOf(status).reason;
  };
  EXPECT_EQ(reason(0, 10, 0, 0, 640), "OK");
  EXPECT_EQ(reason(9, 1, 6, 2, 16), "OK");
  EXPECT_EQ(reason(9, 2, 0, 0, 128), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(11, 1, 0, 0, 64), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(1, INT64_MAX, 0, 0, 64), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(0, 1, 7, 2, 16), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(0, 1, 3, 0, 64), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(0, 1, 1, INT32_MAX, 64), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(reason(0, 1, 0, 0, 63), "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason(0, 2, 0, 0, 64), "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason(0, 1, 0, 0, 0), "TENSOR_BYTES_MISMATCH");
}

TEST(TensorStreamTest, AWrongChecksumIsDataLoss) {
  TensorChunk chunk = SomeChunk(SomeBytes(100));
  EXPECT_TRUE(VerifyCrc(chunk).ok());
  *chunk.crc32c ^= 1;
  const absl::Status status = VerifyCrc(chunk);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DetailOf(status).reason, "CHECKSUM_MISMATCH");
  chunk.crc32c.reset();
  EXPECT_TRUE(VerifyCrc(chunk).ok());
}

}  // namespace
}  // namespace annulus
