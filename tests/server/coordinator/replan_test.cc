// Waiting jobs whose plan no longer fits the workers.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

// Jobs that wait for two workers, one of which leaves. The other could hold all of them.
class ReplanTest : public testing::Test {
 protected:
  void SetUp() override {
    harness_.auto_size = 2;
    harness_.Start(2);
    for (int i = 0; i < 2; ++i) harness_.Run(harness_.Request(0));
    for (int i = 0; i < 4; ++i) waiting_.push_back(harness_.Run(harness_.Request(0)));
    for (const int64_t call : waiting_) ASSERT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
    harness_.auto_size = 1;
    plans_here_ = harness_.plans_made;
    control::v1::WorkerEvent leaving;
    leaving.mutable_leaving();
    harness_.Say(harness_.worker("w1"), leaving);
  }
  void Answer(size_t wanted) {
    const auto& [plan, request] = harness_.plans_wanted.at(wanted);
    harness_.Handle(event::Planned{plan, harness_.MakePlan(request)});
  }
  bool IsFormed(size_t ranks) const {
    const auto& groups = harness_.tables().groups.all();
    return std::any_of(groups.begin(), groups.end(), [ranks](const auto& entry) {
      const GroupRecord& group = entry.second;
      return group.wanted && group.state == GroupRecord::State::kReady &&
             group.members.size() == ranks;
    });
  }
  CoordinatorHarness harness_;
  std::vector<int64_t> waiting_;
  int plans_here_ = 0;
};

// While plans are made, beats are not answered: many plans in one event would cost every worker its
// lease.
TEST_F(ReplanTest, OneIsPlannedInTheEventAndTheOthersElsewhere) {
  EXPECT_EQ(harness_.plans_made - plans_here_, 1);
  EXPECT_EQ(harness_.StateOf(waiting_[0]), Job::STATE_UPLOADING);
  ASSERT_EQ(harness_.plans_wanted.size(), 3u);
  EXPECT_EQ(harness_.Info().queued_jobs(), 3) << "each once";
  for (size_t i = 0; i < 3; ++i) Answer(i);
  for (const int64_t call : waiting_) {
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
    EXPECT_EQ(harness_.Placed(call).shards_size(), 1);
  }
}

// Two workers are present again: the old plans would fit, but were made for others.
TEST_F(ReplanTest, NoneIsPlacedByItsOldPlanMeanwhile) {
  harness_.AddWorker("w2");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_TRUE(IsFormed(2));
  for (size_t i = 1; i < waiting_.size(); ++i) {
    EXPECT_EQ(harness_.StateOf(waiting_[i]), Job::STATE_QUEUED);
  }
  harness_.Advance(harness_.tables().options.regroup_wait);
  Answer(0);
  EXPECT_EQ(harness_.StateOf(waiting_[1]), Job::STATE_UPLOADING) << "it was not out of place";
}

TEST_F(ReplanTest, WhoEndsMeanwhileIsNotPlanned) {
  harness_.Handle(event::CallGone{waiting_[1]});
  EXPECT_EQ(harness_.plans_forgotten, std::vector<int64_t>{harness_.plans_wanted[0].first});
  Answer(0);
  EXPECT_EQ(harness_.Info().queued_jobs(), 2);
  Answer(1);
  EXPECT_EQ(harness_.StateOf(waiting_[2]), Job::STATE_UPLOADING);
}

TEST_F(ReplanTest, ADeadlineEndsWhatIsBeingPlanned) {
  harness_.Advance(harness_.tables().options.max_timeout);
  ASSERT_TRUE(harness_.call(waiting_[3]).finished.has_value());
  EXPECT_EQ(ReasonOf(*harness_.call(waiting_[3]).finished), "EXPIRED_IN_QUEUE");
  EXPECT_EQ(harness_.plans_forgotten.size(), 3u);
  EXPECT_TRUE(harness_.tables().plannings.empty());
}

}  // namespace
}  // namespace annulus
