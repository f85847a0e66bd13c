#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

TEST(ErrorTest, DetailSurvivesCopiesOfTheStatus) {
  ErrorDetail detail;
  detail.reason = "QUEUE_FULL";
  detail.metadata = {{"limit", "64"}, {"queued", "64"}, {"", std::string("nul\0inside", 10)}};
  detail.fields = {{"spec.sequences[2].q_len", "is negative"}, {"spec.dtype", ""}};
  detail.retry_after = absl::Milliseconds(1500);
  const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, "the queue is full", detail);
  const absl::Status copy = status;
  EXPECT_EQ(copy.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(copy.message(), "the queue is full");
  const ErrorDetail got = DetailOf(copy);
  EXPECT_EQ(got.reason, detail.reason);
  EXPECT_EQ(got.metadata, detail.metadata);
  ASSERT_EQ(got.fields.size(), 2u);
  EXPECT_EQ(got.fields[0].field, "spec.sequences[2].q_len");
  EXPECT_EQ(got.fields[0].description, "is negative");
  EXPECT_EQ(got.fields[1].field, "spec.dtype");
  EXPECT_EQ(got.retry_after, absl::Milliseconds(1500));
}

TEST(ErrorTest, InvalidFieldNamesTheFieldInMessageAndDetail) {
  const absl::Status status = InvalidField("SHAPE_MISMATCH", "spec.q_heads", "is 7, not above 0");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "spec.q_heads: is 7, not above 0");
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason, "SHAPE_MISMATCH");
  ASSERT_EQ(detail.fields.size(), 1u);
  EXPECT_EQ(detail.fields[0].field, "spec.q_heads");
  EXPECT_FALSE(detail.retry_after.has_value());
}

TEST(ErrorTest, AtMostSixteenFieldsAndSixtyThreeCharactersOfReason) {
  ErrorDetail detail;
  detail.reason = std::string(100, 'A');
  for (int i = 0; i < 40; ++i) detail.fields.push_back({absl::StrCat("f", i), "x"});
  const ErrorDetail got = DetailOf(MakeError(absl::StatusCode::kInvalidArgument, "m", detail));
  EXPECT_EQ(got.reason, std::string(63, 'A'));
  ASSERT_EQ(got.fields.size(), 16u);
  EXPECT_EQ(got.fields.back().field, "f15");
}

TEST(ErrorTest, WithoutAReasonTheCodeSpeaks) {
  const absl::Status named = InvalidField("INVALID_SCALE", "spec.scale", "is NaN");
  EXPECT_EQ(ReasonOrCode(named), "INVALID_SCALE");
  EXPECT_EQ(ErrorText(named), "INVALID_ARGUMENT / INVALID_SCALE: spec.scale: is NaN");
  EXPECT_EQ(ReasonOrCode(absl::InternalError("a bad tile")), "INTERNAL");
  EXPECT_EQ(ErrorText(absl::InternalError("a bad tile")), "INTERNAL: a bad tile");
}

TEST(ErrorTest, StatusesOfOthersHaveNoReason) {
  EXPECT_EQ(DetailOf(absl::OkStatus()).reason, "");
  EXPECT_EQ(DetailOf(absl::InternalError("boom")).reason, "");
  absl::Status damaged = InvalidField("SHAPE_MISMATCH", "a", "b");
  damaged.SetPayload("annulus.v1/ErrorDetail", absl::Cord("r\xff\xff\xff\xff"));
  EXPECT_EQ(DetailOf(damaged).reason, "");
}

}  // namespace
}  // namespace annulus
