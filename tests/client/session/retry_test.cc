#include "client/session/retry.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

const absl::Status kLost = MakeError(absl::StatusCode::kAborted, "a worker was lost",
                                     {"GROUP_LOST", {}, {}, absl::Seconds(1)});
const absl::Status kFew = MakeError(absl::StatusCode::kFailedPrecondition, "2 workers are ready",
                                    {"INSUFFICIENT_WORKERS", {{"ready", "2"}}, {}, {}});

TEST(AfterAttemptsTest, TheLastErrorNamesTheOneThatMayBeItsCause) {
  const absl::Status status = AfterAttempts(kFew, {kLost, kFew, kFew});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "2 workers are ready (attempt 4; an earlier one: ABORTED / GROUP_LOST: a worker was "
            "lost)");
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason, "INSUFFICIENT_WORKERS");
  EXPECT_EQ(detail.metadata.at("ready"), "2");
  EXPECT_EQ(detail.metadata.at("attempts"), "4");
  EXPECT_EQ(detail.metadata.at("earlier_attempt"), "ABORTED / GROUP_LOST: a worker was lost");
}

TEST(AfterAttemptsTest, AttemptsThatEndAlikeAreCounted) {
  const absl::Status status = AfterAttempts(kLost, {kLost, kLost});
  EXPECT_EQ(std::string(status.message()), "a worker was lost (attempt 3)");
  EXPECT_EQ(DetailOf(status).retry_after, absl::Seconds(1));
}

TEST(AfterAttemptsTest, WhatWasAttemptedOnceIsAsItIs) {
  EXPECT_EQ(AfterAttempts(kFew, {}), kFew);
  EXPECT_EQ(AfterAttempts(absl::OkStatus(), {kLost}), absl::OkStatus());
}

TEST(AfterAttemptsTest, ACallThatIsMadeAgainTellsOfThemAll) {
  const absl::Time began = absl::UnixEpoch();
  int calls = 0;
  const absl::StatusOr<int> answer = CallWithRetries<int>(
      RetryPolicy(4, [] { return 0.0; }), began + absl::Hours(1), [&] { return began; },
      [](absl::Duration) {},
      [&](absl::Duration) -> absl::StatusOr<int> { return ++calls == 1 ? kLost : kFew; });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(DetailOf(answer.status()).metadata["attempts"], "4");
  EXPECT_EQ(DetailOf(answer.status()).metadata["earlier_attempt"], ErrorText(kLost));
}

}  // namespace
}  // namespace annulus
