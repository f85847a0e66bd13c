#include "proto/rpc/request_fields.h"

#include <string>
#include <vector>

#include "annulus/v1/jobs.pb.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/rpc/message_limits.h"

namespace annulus {
namespace {

grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece)
    slices.emplace_back(bytes.data() + at, std::min(piece, bytes.size() - at));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string ReasonOf(const std::string& bytes) {
  v1::RunJobRequest request;
  return DetailOf(ParseRequest(InPieces(bytes, 1000), &request)).reason;
}

// `sequences` empty messages in a spec, which is one message itself.
std::string WithSequences(int64_t sequences) {
  v1::RunJobRequest request;
  for (int64_t i = 0; i < sequences; ++i) request.mutable_spec()->add_sequences();
  return request.SerializeAsString();
}

TEST(RequestTest, PartsAreCountedBeforeTheyAreMade) {
  EXPECT_EQ(ReasonOf(WithSequences(kMaxRequestParts - 1)), "");
  EXPECT_EQ(ReasonOf(WithSequences(kMaxRequestParts)), "LIMIT_EXCEEDED");
}

TEST(RequestTest, FieldsThatNobodyKnowsAreParts) {
  const std::string number("\xa0\x06\x07", 3), text("\xa2\x06\x00", 3);  // Both have field 100.
  for (const std::string& field : {number, text}) {
    std::string many;
    for (int64_t i = 0; i < kMaxRequestParts; ++i) many += field;
    EXPECT_EQ(ReasonOf(many), "");
    EXPECT_EQ(ReasonOf(many + field), "LIMIT_EXCEEDED");
  }
}

// protobuf stores them like unknown fields.
TEST(RequestTest, FieldsOfAnotherTypeAreParts) {
  const std::string number("\x08\x07", 2);     // request_id as a number instead of a string.
  const std::string message("\x10\x07", 2);    // spec as a number instead of a message.
  const std::string fixed("\x25\0\0\0\0", 5);  // detached as a fixed32 instead of a bool.
  for (const std::string& field : {number, message, fixed}) {
    std::string many;
    for (int64_t i = 0; i < kMaxRequestParts; ++i) many += field;
    EXPECT_EQ(ReasonOf(many), "");
    EXPECT_EQ(ReasonOf(many + field), "LIMIT_EXCEEDED");
  }
}

TEST(RequestTest, GroupsAreRefusedForAllThatTheyHold) {
  const std::string group("\x7b\x7c", 2);  // Field 15, start and end of a group.
  EXPECT_EQ(ReasonOf(group), "MALFORMED_MESSAGE");
  EXPECT_EQ(ReasonOf(std::string("\x12\x02", 2) + group), "MALFORMED_MESSAGE") << "in the spec";
  EXPECT_EQ(ReasonOf(std::string("\x12\x01\x7b\x7c", 4)), "MALFORMED_MESSAGE");
  EXPECT_EQ(ReasonOf(WithSequences(1) + group), "MALFORMED_MESSAGE");
}

TEST(RequestTest, NumbersOneByOneAreOfTheirFieldsType) {
  std::string mask;
  for (int64_t i = 0; i <= kMaxRequestParts; ++i) mask += std::string("\x50\x01", 2);
  v1::Mask packed;
  ASSERT_TRUE(packed.ParseFromString(mask));
  ASSERT_EQ(packed.query_heads_size(), kMaxRequestParts + 1) << "not packed here";
  v1::AttentionSpec spec;
  spec.add_masks();
  std::string bytes = spec.SerializeAsString();
  ASSERT_EQ(bytes.back(), 0);
  bytes.pop_back();
  const auto add_length = [](size_t length, std::string* text) {
    for (; length >= 0x80; length >>= 7) text->push_back(static_cast<char>(length | 0x80));
    text->push_back(static_cast<char>(length));
  };
  add_length(mask.size(), &bytes);
  bytes += mask;
  std::string request("\x12", 1);
  add_length(bytes.size(), &request);
  EXPECT_EQ(ReasonOf(request + bytes), "");
}

TEST(RequestTest, NumbersInOneFieldAreOnePart) {
  v1::RunJobRequest request;
  v1::Mask& mask = *request.mutable_spec()->add_masks();
  for (int64_t i = 0; i < 2 * kMaxRequestParts; ++i) mask.add_query_heads(1);
  EXPECT_EQ(ReasonOf(request.SerializeAsString()), "");
}

TEST(RequestTest, WhatDoesNotParseIsSaidSo) {
  const std::string whole = WithSequences(3);
  for (size_t cut = 1; cut < whole.size(); ++cut)
    EXPECT_EQ(ReasonOf(whole.substr(0, cut)), "MALFORMED_MESSAGE") << cut;
  EXPECT_EQ(ReasonOf(std::string("\x0a\x05\x12\x7f", 4)), "MALFORMED_MESSAGE");
  EXPECT_EQ(ReasonOf(std::string("\x0a\xff\xff\xff\xff\x0f", 6)), "MALFORMED_MESSAGE");
  EXPECT_EQ(ReasonOf(std::string("\x0b", 1)), "MALFORMED_MESSAGE");  // A group without end.
}

TEST(RequestTest, AMessageThatIsTakenIsNotKept) {
  v1::GetJobRequest question;
  question.set_job_id("job-1");
  v1::GetJobRequest taken;
  for (const bool small : {true, false}) {
    const grpc::ByteBuffer arrived = InPieces(question.SerializeAsString(), 3);
    const absl::Status status =
        small ? TakeQuestion(&arrived, &taken) : TakeRequest(&arrived, &taken);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(taken.job_id(), "job-1");
    EXPECT_FALSE(arrived.Valid());
  }
  const grpc::ByteBuffer broken = InPieces("\x0b", 1);
  EXPECT_FALSE(TakeRequest(&broken, &taken).ok());
  EXPECT_FALSE(broken.Valid());
}

TEST(RequestTest, QuestionsAreSmallAndKnown) {
  const auto reason = [](const google::protobuf::Message& question) {
    v1::GetJobRequest taken;
    const grpc::ByteBuffer arrived = InPieces(question.SerializeAsString(), 1000);
    return DetailOf(TakeQuestion(&arrived, &taken)).reason;
  };
  v1::GetJobRequest question;
  question.set_job_id(std::string(kMaxQuestionBytes - 3, 'x'));  // Plus tag and length.
  EXPECT_EQ(reason(question), "");
  question.mutable_job_id()->push_back('x');
  EXPECT_EQ(reason(question), "LIMIT_EXCEEDED");
  v1::GetJobRequest unknown;
  ASSERT_TRUE(unknown.MergeFromString("\x98\x06\x01"));  // Field 99.
  EXPECT_EQ(reason(unknown), "UNKNOWN_FIELD");
}

}  // namespace
}  // namespace annulus
