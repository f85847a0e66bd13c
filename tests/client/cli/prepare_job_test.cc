#include "client/cli/prepare_job.h"

#include <optional>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

using Code = absl::StatusCode;

absl::Status Error(Code code, const char* reason, std::optional<absl::Duration> retry = {}) {
  return MakeError(code, "told", {reason, {}, {}, retry});
}

TEST(AskFirstTest, OnlyWhatStaysRefusedIsARefusal) {
  EXPECT_TRUE(IsRefusal(Error(Code::kFailedPrecondition, "INSUFFICIENT_WORKERS")));
  EXPECT_TRUE(IsRefusal(Error(Code::kResourceExhausted, "INSUFFICIENT_CAPACITY")));
  EXPECT_TRUE(IsRefusal(Error(Code::kUnimplemented, "NOT_SERVED")));
  EXPECT_TRUE(IsRefusal(Error(Code::kInvalidArgument, "INVALID_MASK")));
  EXPECT_FALSE(IsRefusal(absl::OkStatus()));
  EXPECT_FALSE(IsRefusal(absl::UnimplementedError("of a coordinator that knows no dry runs")));
  EXPECT_FALSE(IsRefusal(Error(Code::kResourceExhausted, "QUEUE_FULL", absl::Seconds(1))));
  for (const Code code : {Code::kUnavailable, Code::kDeadlineExceeded, Code::kCancelled,
                          Code::kAborted, Code::kInternal, Code::kUnknown}) {
    EXPECT_FALSE(IsRefusal(Error(code, "ANY"))) << static_cast<int>(code);
  }
}

// A client with an address at which nothing listens.
TEST(AskFirstTest, WhoCannotAskGoesOn) {
  ClientOptions nobody;
  nobody.address = "127.0.0.1:1";
  JobRequest request;
  request.spec.dtype = DataType::kFp32;
  request.spec.q_heads = request.spec.kv_heads = 8;
  request.spec.head_dim = request.spec.head_dim_v = 64;
  request.spec.sequences.resize(1);
  request.spec.sequences[0].q_len = request.spec.sequences[0].kv_len = 1 << 20;
  EXPECT_EQ(AskFirst(nobody, request, absl::Milliseconds(50)), absl::OkStatus());
  EXPECT_EQ(AskFirst(nobody, request, absl::ZeroDuration()), absl::OkStatus());
}

}  // namespace
}  // namespace annulus
