#include "proto/request.h"

#include <string>
#include <vector>

#include "annulus/v1/jobs.pb.h"
#include "attention/error.h"
#include "gtest/gtest.h"

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

// So many empty messages `sequences` of a spec, which is one itself.
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
  const std::string number("\xa0\x06\x07", 3), text("\xa2\x06\x00", 3);  // Both of field 100.
  for (const std::string& field : {number, text}) {
    std::string many;
    for (int64_t i = 0; i < kMaxRequestParts; ++i) many += field;
    EXPECT_EQ(ReasonOf(many), "");
    EXPECT_EQ(ReasonOf(many + field), "LIMIT_EXCEEDED");
  }
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
  EXPECT_EQ(ReasonOf(std::string("\x0b", 1)), "MALFORMED_MESSAGE");  // A group that does not end.
}

}  // namespace
}  // namespace annulus
