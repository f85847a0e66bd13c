#include "client/cli/state_release.h"

#include <string>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// Returns the same answer for every state.
struct Release {
  absl::Status answer;
  std::string asked;

  ReleaseCall call() {
    return [this](const std::string& job_id) {
      asked += job_id;
      return answer;
    };
  }
};

const absl::Status& Wrong() {
  static const absl::Status kWrong =
      MakeError(absl::StatusCode::kDataLoss, "wrong",
                {"RESULT_VERIFICATION_FAILED", {{"seed", "7"}}, {}, {}});
  return kWrong;
}

TEST(StateReleaseTest, WhatWasUsedIsReleasedOrSaidNotToBe) {
  Release well{absl::OkStatus(), ""}, unknown{absl::NotFoundError("no such job"), ""};
  Release away{absl::UnavailableError("gone"), ""};
  EXPECT_EQ(ReleaseUsed("4f", well.call()), "");
  EXPECT_EQ(well.asked, "4f");
  EXPECT_EQ(ReleaseUsed("4f", unknown.call()), "");
  EXPECT_EQ(ReleaseUsed("4f", away.call()), "UNAVAILABLE: gone");
}

TEST(StateReleaseTest, WhatNobodyWouldAskForIsReleasedAndTheErrorStays) {
  Release well{absl::OkStatus(), ""}, unknown{absl::NotFoundError("no such job"), ""};
  EXPECT_EQ(ReleaseUnasked("4f", Wrong(), well.call()), Wrong());
  EXPECT_EQ(well.asked, "4f");
  EXPECT_EQ(ReleaseUnasked("4f", Wrong(), unknown.call()), Wrong());
}

TEST(StateReleaseTest, WhereItMayStayTheErrorSaysWhoseItIs) {
  Release away{absl::UnavailableError("gone"), ""};
  const absl::Status status = ReleaseUnasked("4f", Wrong(), away.call());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "wrong; job 4f may still keep its state (UNAVAILABLE: gone)");
  EXPECT_EQ(DetailOf(status).reason, "RESULT_VERIFICATION_FAILED");
  EXPECT_EQ(DetailOf(status).metadata["seed"], "7");
  EXPECT_EQ(DetailOf(status).metadata["job_id"], "4f");
}

}  // namespace
}  // namespace annulus
