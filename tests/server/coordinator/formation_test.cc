// Jobs that wait for groups that do not form.

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;
using v1::Job;

class FormationTest : public testing::Test {
 protected:
  FormationTest() { harness_.hold = {WorkerCommand::kOpenGroup}; }
  // The first worker fails to open the group of `size` workers. False if that group is not being
  // opened.
  bool FailOpening(int32_t size) {
    auto& commands = harness_.worker("w0").commands;
    const auto open = std::find_if(commands.begin(), commands.end(), [=](const auto& command) {
      return command.has_open_group() && command.open_group().size() == size;
    });
    if (open == commands.end()) return false;
    WorkerEvent event;
    *event.mutable_group_opened()->mutable_generation() = open->open_group().generation();
    commands.erase(open);
    v1::Error& error = *event.mutable_group_opened()->mutable_error();
    error.set_code(14);
    error.set_reason("CANNOT_LISTEN");
    error.set_message("no port");
    harness_.Say(harness_.worker("w0"), event);
    harness_.Execute();  // AbortGroup.
    return true;
  }
  // FailOpening for each attempt during `time`. Returns the number of attempts.
  int FailOpeningFor(absl::Duration time) {
    int tries = 0;
    for (const absl::Time end = harness_.now() + time; harness_.now() < end;) {
      harness_.Advance(absl::Milliseconds(50));
      tries += FailOpening(2);
    }
    return tries;
  }
  // From now on groups form.
  void Recover() {
    harness_.hold.clear();
    harness_.Advance(harness_.tables().options.max_formation_pause);
    harness_.Execute();
  }
  CoordinatorHarness harness_;
};

TEST_F(FormationTest, AJobOfAnySizeIsPlannedAgainWithoutTheGroup) {
  harness_.auto_size = 2;
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(0));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  ASSERT_TRUE(FailOpening(2));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.Placed(call).shards_size(), 1);
}

TEST_F(FormationTest, AJobThatFitsOnlyTheGroupIsServedByTheNextTry) {
  harness_.auto_size = 2;
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(0));
  harness_.plan_error = MakeError(absl::StatusCode::kFailedPrecondition, "too large",
                                  ErrorDetail{"INSUFFICIENT_CAPACITY", {}, {}, {}});
  ASSERT_TRUE(FailOpening(2));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  Recover();
  EXPECT_EQ(harness_.Placed(call).shards_size(), 2);
}

TEST_F(FormationTest, AJobOfSoManyRanksIsServedByTheNextTry) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  EXPECT_GT(FailOpeningFor(absl::Seconds(4)), 2);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  Recover();
  EXPECT_EQ(harness_.Placed(call).shards_size(), 2);
}

TEST_F(FormationTest, AJobOfSoManyRanksEndsInTimeAndSaysWhy) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  EXPECT_GT(FailOpeningFor(absl::Seconds(11)), 2);
  ASSERT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
  const absl::Status error = *harness_.call(call).finished;
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(error), "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(error).metadata["cause"], "CANNOT_LISTEN");
  EXPECT_EQ(error.message(),
            "execution.world_size: no group of 2 workers could be formed: no port");
}

// Two of three workers cannot form their group; all three have one.
TEST_F(FormationTest, AJobTakesALargerGroupWhereItsOwnDoesNotForm) {
  harness_.Start(3);
  const int64_t call = harness_.Run(harness_.Request(2));
  ASSERT_TRUE(FailOpening(2));
  harness_.Advance(absl::Seconds(1));
  for (const char* slot : {"w0", "w1"}) {  // The next attempt, which stays unanswered.
    auto& commands = harness_.worker(slot).commands;
    ASSERT_EQ(commands.back().open_group().size(), 2);
    commands.pop_back();
  }
  harness_.hold.clear();
  harness_.Execute();
  ASSERT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.Placed(call).shards_size(), 2);
}

// Leaving a broken group may take longer than a job waits for a group that does not form.
TEST_F(FormationTest, AJobWaitsForAGroupThatBrokeAndIsLeft) {
  harness_.hold.clear();
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  harness_.hold = {WorkerCommand::kAbortGroup};
  WorkerEvent broken;
  broken.mutable_group_broken()->mutable_generation()->set_term(harness_.tables().term);
  broken.mutable_group_broken()->mutable_generation()->set_number(1);
  harness_.Say(harness_.worker("w0"), broken);
  harness_.Advance(absl::Seconds(13));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  harness_.hold.clear();
  harness_.Execute();
  Recover();
  EXPECT_EQ(harness_.Placed(call).attempt(), 2);
}

}  // namespace
}  // namespace annulus
