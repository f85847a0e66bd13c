#include "proto/wire/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(StatusTest, AnErrorCrossesGrpcWithItsDetail) {
  const absl::Status status =
      MakeError(absl::StatusCode::kInvalidArgument, "spec.q_heads: 3 is not a multiple of 2",
                ErrorDetail{"SHAPE_MISMATCH",
                            {{"q_heads", "3"}},
                            {{"spec.q_heads", "not a multiple"}},
                            absl::Seconds(1)});
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), status.message());
  const ErrorDetail detail = DetailOf(back);
  EXPECT_EQ(detail.reason, "SHAPE_MISMATCH");
  EXPECT_EQ(detail.metadata.at("q_heads"), "3");
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.q_heads");
  EXPECT_EQ(detail.retry_after, absl::Seconds(1));
}

TEST(StatusTest, OkIsOkAndAPlainErrorHasItsCodeAsReason) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  const absl::Status plain = FromGrpcStatus(ToGrpcStatus(absl::InternalError("x")));
  EXPECT_EQ(plain.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(plain.message(), "x");
  EXPECT_EQ(DetailOf(plain).reason, "INTERNAL");
}

TEST(StatusTest, WhatGrpcMakesByItselfHasNoReason) {
  const absl::Status status = FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "reset"));
  EXPECT_EQ(DetailOf(status).reason, "");
}

TEST(StatusTest, TheWireFormIsGoogleRpc) {
  const grpc::Status status =
      ToGrpcStatus(InvalidField("INVALID_SCALE", "spec.scale", "NaN is not a scale"));
  google::rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(rich.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "INVALID_SCALE");
  EXPECT_EQ(info.domain(), "annulus.v1");
  EXPECT_EQ(rich.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
}

TEST(StatusTest, HugeDetailsAreCutBelowTheMetadataLimit) {
  ErrorDetail detail{"SHAPE_MISMATCH", {}, {}, {}};
  for (int i = 0; i < 200; ++i) {
    detail.fields.push_back({absl::StrCat("f", i), std::string(5000, 'x')});
  }
  detail.metadata["long"] = std::string(100000, 'y');
  const grpc::Status status =
      ToGrpcStatus(MakeError(absl::StatusCode::kInvalidArgument, std::string(100000, 'm'), detail));
  EXPECT_LT(status.error_details().size(), 6144u);
  EXPECT_EQ(DetailOf(FromGrpcStatus(status)).reason, "SHAPE_MISMATCH");
}

TEST(StatusTest, IsCutBetweenCharactersAndFitsIntoHeadersAltogether) {
  for (int shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 2000; ++i) text += "\u20ac";  // Three bytes, and nine in a header.
    ErrorDetail detail{"SHAPE_MISMATCH", {}, {}, {}};
    for (int i = 0; i < 200; ++i) {
      detail.fields.push_back({absl::StrCat(i, text), text});
      detail.metadata[absl::StrCat(i, text)] = text;
    }
    const grpc::Status status =
        ToGrpcStatus(MakeError(absl::StatusCode::kInvalidArgument, text, detail));
    EXPECT_LT(3 * status.error_message().size() + status.error_details().size() * 4 / 3, 8000u);
    const ErrorDetail got = DetailOf(FromGrpcStatus(status));
    EXPECT_EQ(got.reason, "SHAPE_MISMATCH") << shift;
    ASSERT_FALSE(got.fields.empty() || got.metadata.empty());
    EXPECT_EQ(got.fields[0].description, text.substr(0, 256 - (256 - shift) % 3));
  }
}

TEST(StatusTest, DetailsOfAForeignDomainAreLeftOut) {
  google::rpc::ErrorInfo info;
  info.set_reason("THEIRS");
  info.set_domain("example.com");
  google::rpc::Status rich;
  rich.add_details()->PackFrom(info);
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "m", rich.SerializeAsString()));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(DetailOf(status).reason, "");
}

}  // namespace
}  // namespace annulus
