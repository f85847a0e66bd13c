#include "client/session_end.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

AttentionSpec Releasing() {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.gradients.state = "kept";
  spec.gradients.release_state = true;
  return spec;
}

TEST(SessionEndTest, WhatAnEndIsAwaitedFor) {
  v1::RunJobRequest request;
  EXPECT_FALSE(AwaitsEndOfCall(request, AttentionSpec()));
  EXPECT_TRUE(AwaitsEndOfCall(request, Releasing()));
  AttentionSpec keeping;
  keeping.forward.keep_state = absl::Minutes(1);
  EXPECT_TRUE(AwaitsEndOfCall(request, keeping));
  request.set_request_id("one");
  EXPECT_TRUE(AwaitsEndOfCall(request, AttentionSpec()));
}

TEST(SessionEndTest, RowsStandWhereNoOtherAttemptCouldBringThem) {
  const absl::Status broken = absl::UnavailableError("gone");
  EXPECT_TRUE(StandsUnconfirmed(Releasing(), broken));
  EXPECT_TRUE(StandsUnconfirmed(Releasing(), absl::DeadlineExceededError("late")));
  AttentionSpec using_it = Releasing();
  using_it.gradients.release_state = false;
  EXPECT_FALSE(StandsUnconfirmed(using_it, broken)) << "the state is still there";
  AttentionSpec keeping;
  keeping.forward.keep_state = absl::Minutes(1);
  EXPECT_FALSE(StandsUnconfirmed(keeping, broken)) << "its state is what was asked for";
}

TEST(SessionEndTest, AnErrorThatSpeaksAgainstTheRowsIsTheAnswer) {
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::InternalError("schedules differ")));
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::DataLossError("checksum")));
  EXPECT_FALSE(StandsUnconfirmed(Releasing(), absl::OkStatus()));
}

}  // namespace
}  // namespace annulus
