#include <algorithm>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;
using v1::Job;

class GroupTest : public testing::Test {
 protected:
  // Expects the extra time of members that run a segment when their group breaks.
  void ExpectTenMinutesToAnswer() {
    harness_.Start(2);
    harness_.hold = {WorkerCommand::kRunSegment, WorkerCommand::kAbortGroup};
    const std::string job = harness_.JobOf(harness_.Run(harness_.Request(2)));
    harness_.Upload(job);
    harness_.Execute();
    Break("w0", 1);
    harness_.Advance(harness_.tables().options.answer_timeout + absl::Minutes(10) -
                     absl::Seconds(1));
    EXPECT_EQ(harness_.Info().workers_size(), 2);
    harness_.Advance(absl::Seconds(2));
    EXPECT_EQ(harness_.Info().workers_size(), 0);
  }

  explicit GroupTest(CoordinatorOptions options = {}) : harness_(std::move(options)) {}
  std::vector<std::vector<std::string>> ReadyGroups() {
    std::vector<std::vector<std::string>> groups;
    for (const v1::GroupInfo& group : harness_.Info().groups()) {
      if (group.ready()) groups.emplace_back(group.slots().begin(), group.slots().end());
    }
    return groups;
  }
  void Break(const std::string& slot, int64_t generation) {
    WorkerEvent event;
    event.mutable_group_broken()->mutable_generation()->set_term(harness_.tables().term);
    event.mutable_group_broken()->mutable_generation()->set_number(generation);
    event.mutable_group_broken()->mutable_cause()->set_code(14);
    event.mutable_group_broken()->mutable_cause()->set_reason("PEER_LOST");
    harness_.Say(harness_.worker(slot), event);
  }
  CoordinatorHarness harness_;
};

TEST_F(GroupTest, FormationIsTwoPhasedAndReadyWhenAllHaveConnected) {
  harness_.hold = {WorkerCommand::kOpenGroup, WorkerCommand::kConnectGroup};
  harness_.Start(2);
  auto open = harness_.Take(harness_.worker("w0"), WorkerCommand::kOpenGroup);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->open_group().rank(), 0);
  EXPECT_EQ(open->open_group().size(), 2);
  EXPECT_FALSE(harness_.Take(harness_.worker("w0"), WorkerCommand::kConnectGroup).has_value());
  harness_.worker("w0").commands.push_front(*open);
  harness_.hold = {WorkerCommand::kConnectGroup};
  harness_.Execute();
  ASSERT_EQ(harness_.worker("w1").commands.size(), 1u);
  EXPECT_EQ(harness_.worker("w1").commands[0].connect_group().bootstraps(0), "at w0");
  EXPECT_TRUE(ReadyGroups().empty());
  harness_.hold.clear();
  harness_.Execute();
  EXPECT_EQ(ReadyGroups().size(), 1u);
}

TEST_F(GroupTest, FamilyFollowsTheMembershipAndKeepsWhatIsStillRight) {
  harness_.Start(4);
  EXPECT_EQ(ReadyGroups().size(), 3u);
  harness_.Disconnect(harness_.worker("w3"));
  harness_.Advance(absl::Seconds(4));
  harness_.Execute();
  using Groups = std::vector<std::vector<std::string>>;
  EXPECT_EQ(ReadyGroups(), Groups({{"w0", "w1"}, {"w0", "w1", "w2"}}));
  harness_.AddWorker("w3");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_EQ(ReadyGroups().size(), 3u);
}

TEST_F(GroupTest, AFormationThatIsNotWantedAnyMoreIsNoLoss) {
  for (const bool wanted : {false, true}) {
    CoordinatorHarness harness;
    harness.hold = {WorkerCommand::kOpenGroup};
    harness.Start(2);
    if (wanted) {
      harness.Advance(harness.tables().options.answer_timeout + absl::Seconds(1));
    } else {
      WorkerEvent leaving;
      leaving.mutable_leaving();
      harness.Say(harness.worker("w1"), leaving);
    }
    const auto aborted = std::find_if(
        harness.logged.begin(), harness.logged.end(),
        [](const action::Log& log) { return absl::StrContains(log.text, "group 1 is aborted"); });
    ASSERT_NE(aborted, harness.logged.end());
    EXPECT_EQ(aborted->level, wanted ? LogLevel::kWarning : LogLevel::kInfo) << aborted->text;
  }
}

class SmallGroupsTest : public GroupTest {
 protected:
  SmallGroupsTest() : GroupTest(PairsAtMost()) {}
  static CoordinatorOptions PairsAtMost() {
    CoordinatorOptions options;
    options.limits.max_world_size = 2;
    return options;
  }
};

TEST_F(SmallGroupsTest, NoGroupIsLargerThanAJobMayBe) {
  harness_.Start(5);
  using Groups = std::vector<std::vector<std::string>>;
  EXPECT_EQ(ReadyGroups(), Groups({{"w0", "w1"}, {"w2", "w3"}}));
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(2))), Job::STATE_UPLOADING);
}

TEST_F(GroupTest, LocalityThenSlotOrdersRanks) {
  for (const char* slot : {"a", "b", "c"}) {
    WorkerEvent event = harness_.RegisterEvent(slot, slot);
    event.mutable_register_()->set_locality(slot[0] == 'b' ? "rack-1" : "rack-2");
    harness_.worker(slot).slot = slot;
    harness_.Connect(harness_.worker(slot), event);
  }
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_EQ(ReadyGroups()[0], (std::vector<std::string>{"b", "a", "c"}));
}

TEST_F(GroupTest, PoisonedGroupAbortsEverywhereAndTheNextGenerationRunsTheJobAgain) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  harness_.Upload(harness_.JobOf(call));
  harness_.hold = {WorkerCommand::kRunSegment, WorkerCommand::kAbortGroup,
                   WorkerCommand::kOpenGroup};
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  Break("w1", 1);
  for (const char* slot : {"w0", "w1"}) {
    EXPECT_TRUE(harness_.Take(harness_.worker(slot), WorkerCommand::kAbortGroup).has_value());
    EXPECT_FALSE(harness_.Take(harness_.worker(slot), WorkerCommand::kOpenGroup).has_value());
  }
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED);
  WorkerEvent closed;
  closed.mutable_group_closed()->mutable_generation()->set_term(harness_.tables().term);
  closed.mutable_group_closed()->mutable_generation()->set_number(1);
  harness_.Say(harness_.worker("w0"), closed);
  harness_.Say(harness_.worker("w1"), closed);
  harness_.hold.clear();
  harness_.worker("w0").commands.clear();  // The old generation's segments end with it.
  harness_.worker("w1").commands.clear();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  ASSERT_EQ(ReadyGroups().size(), 1u);
  EXPECT_EQ(harness_.tables().groups.all().begin()->first, 2);
  EXPECT_EQ(harness_.Placed(call).attempt(), 2);
  int needed = 0;
  for (const v1::JobEvent& event : harness_.call(call).events) {
    if (!event.has_shard_needed()) continue;
    ++needed;
    EXPECT_EQ(event.shard_needed().attempt(), 2);
    EXPECT_EQ(event.shard_needed().cause().reason(), "PEER_LOST");
  }
  EXPECT_EQ(needed, 2);
}

TEST_F(GroupTest, TheLogSaysWhereAGroupBrokeAndWhomItSuspects) {
  harness_.Start(2);
  WorkerEvent event;
  control::v1::GroupBroken& broken = *event.mutable_group_broken();
  broken.mutable_generation()->set_term(harness_.tables().term);
  broken.mutable_generation()->set_number(1);
  broken.mutable_shard()->set_job_id("job");
  broken.set_segment(2);
  broken.set_step(5);
  broken.set_suspect_rank(0);
  broken.mutable_cause()->set_code(14);
  broken.mutable_cause()->set_reason("PEER_LOST");
  broken.mutable_cause()->set_message("reset");
  harness_.logged.clear();
  harness_.Say(harness_.worker("w1"), event);
  ASSERT_FALSE(harness_.logged.empty());
  EXPECT_EQ(harness_.logged[0].job, "job");
  EXPECT_EQ(harness_.logged[0].text,
            "group 1 broke at rank 1 (w1), segment 2, step 5, suspected rank: rank 0 (w0): "
            "PEER_LOST: reset");
}

TEST_F(GroupTest, EventsOfAnOldGenerationChangeNothing) {
  harness_.Start(2);
  Break("w0", 1);
  harness_.Execute();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  ASSERT_EQ(ReadyGroups().size(), 1u);
  const int64_t call = harness_.Run(harness_.Request(2));
  Break("w0", 1);
  Break("w0", 99);
  EXPECT_EQ(ReadyGroups().size(), 1u);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
}

TEST_F(GroupTest, LostWorkerRunsTheJobAgainOnTheSurvivorsOrEndsIt) {
  harness_.auto_size = 4;
  harness_.Start(4);
  const int64_t automatic = harness_.Run(harness_.Request(0));
  v1::RunJobRequest once = harness_.Request(4);
  once.set_single_attempt(true);
  const int64_t single = harness_.Run(once);
  EXPECT_EQ(harness_.Placed(automatic).shards_size(), 4);
  harness_.Upload(harness_.JobOf(automatic));
  harness_.Disconnect(harness_.worker("w2"));
  harness_.Advance(absl::Seconds(3));
  harness_.Execute();
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(single), Job::STATE_FAILED);
  EXPECT_EQ(ReasonOf(*harness_.call(single).finished), "GROUP_LOST");
  EXPECT_EQ(harness_.call(single).finished->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(DetailOf(*harness_.call(single).finished).retry_after.has_value());
  EXPECT_EQ(DetailOf(*harness_.call(single).finished).metadata["cause"], "WORKER_LOST");
  EXPECT_EQ(harness_.Placed(automatic).attempt(), 2);
  EXPECT_EQ(harness_.Placed(automatic).shards_size(), 3) << "AUTO takes what is there";
}

// Its inputs are lost, and no client would upload them again.
TEST_F(GroupTest, ADetachedJobThatNobodyFollowsEndsWithItsWorker) {
  harness_.Start(4);
  std::vector<std::string> jobs;
  for (const bool followed : {false, true}) {
    v1::RunJobRequest request = harness_.Request(2);
    request.set_detached(true);
    const int64_t call = harness_.Run(request);
    jobs.push_back(harness_.JobOf(call));
    harness_.Upload(jobs.back());
    if (followed) harness_.Handle(event::WatchJob{harness_.NewCall(), "anonymous", jobs.back()});
    harness_.Handle(event::CallGone{call});
  }
  for (const char* slot : {"w0", "w1", "w2", "w3"}) {
    harness_.silent.insert(slot);
    harness_.Disconnect(harness_.worker(slot));
  }
  harness_.Advance(absl::Seconds(4));
  EXPECT_EQ(harness_.Get(jobs[0]).state(), Job::STATE_FAILED);
  EXPECT_EQ(harness_.Get(jobs[0]).error().reason(), "GROUP_LOST");
  EXPECT_EQ(harness_.Get(jobs[1]).state(), Job::STATE_QUEUED);
}

TEST_F(GroupTest, AskedWorldSizeNeverShrinksOnARerun) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  harness_.Disconnect(harness_.worker("w1"));
  harness_.Advance(absl::Seconds(4));
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_QUEUED) << "a replacement may come";
  harness_.Advance(absl::Seconds(11));
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "GROUP_LOST");
}

TEST_F(GroupTest, AttemptsAreCounted) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  for (int64_t generation : {1, 2}) {
    Break("w0", generation);
    harness_.Execute();
    harness_.Advance(absl::Seconds(2));
    harness_.Execute();
  }
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "GROUP_LOST");
  EXPECT_EQ(DetailOf(*harness_.call(call).finished).metadata["attempts"], "2");
}

TEST_F(GroupTest, FailedFormationIsTriedAgainLaterAndLater) {
  harness_.hold = {WorkerCommand::kOpenGroup};
  harness_.Start(2);
  std::vector<absl::Time> opened;
  for (int i = 0; i < 4; ++i) {
    for (int tries = 0; tries < 200 && harness_.worker("w0").commands.empty(); ++tries) {
      harness_.Advance(absl::Milliseconds(50));
    }
    auto open = harness_.Take(harness_.worker("w0"), WorkerCommand::kOpenGroup);
    ASSERT_TRUE(open.has_value());
    opened.push_back(harness_.now());
    WorkerEvent event;
    *event.mutable_group_opened()->mutable_generation() = open->open_group().generation();
    event.mutable_group_opened()->mutable_error()->set_code(14);
    harness_.Say(harness_.worker("w0"), event);
    harness_.Take(harness_.worker("w1"), WorkerCommand::kOpenGroup);
    harness_.Execute();  // GroupClosed.
  }
  EXPECT_GE(opened[3] - opened[2], 2 * (opened[2] - opened[1]) - absl::Milliseconds(50));
}

TEST_F(GroupTest, MemberThatDoesNotAnswerAbortIsLost) {
  harness_.Start(2);
  Break("w0", 1);
  WorkerEvent closed;
  closed.mutable_group_closed()->mutable_generation()->set_term(harness_.tables().term);
  closed.mutable_group_closed()->mutable_generation()->set_number(1);
  harness_.Say(harness_.worker("w0"), closed);
  harness_.Advance(harness_.tables().options.answer_timeout + absl::Seconds(1));
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  EXPECT_EQ(harness_.Info().workers(0).slot(), "w0");
  EXPECT_TRUE(harness_.tables().groups.all().empty());
}

// An unsplit step takes long, and the answer is queued behind it in the worker's lane.
TEST_F(GroupTest, AMemberAtALongStepHasTimeForItBeforeItAnswers) {
  harness_.longest_step = absl::Minutes(5);
  ExpectTenMinutesToAnswer();
}

// So does a segment of many steps, if the coordinator is configured to make long ones.
TEST_F(GroupTest, AMemberAtALongSegmentHasTimeForItBeforeItAnswers) {
  harness_.plan_seconds = 300;
  ExpectTenMinutesToAnswer();
}

// A spec of megabytes is stored once for any number of ranks whose Reserve is unanswered.
TEST_F(GroupTest, RanksShareTheSpecOfTheirReserves) {
  harness_.hold = {WorkerCommand::kReserve};
  harness_.Start(4);
  harness_.Run(harness_.Request(4));
  const auto spec = harness_.worker("w0").spec;
  ASSERT_NE(spec, nullptr);
  for (const char* slot : {"w1", "w2", "w3"}) EXPECT_EQ(harness_.worker(slot).spec, spec);
}

TEST_F(GroupTest, LanesOfAllWorkersAreProjectionsOfOneOrder) {
  harness_.segments = 3;
  harness_.Start(4);
  for (int i = 0; i < 6; ++i) {
    const int64_t call = harness_.Run(harness_.Request(i % 2 == 0 ? 2 : 4));
    harness_.Upload(harness_.JobOf(call));
    harness_.Execute();
    harness_.Fetch(harness_.JobOf(call));
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  }
  // Lane commands by worker, without ranks: any two workers agree on the order of their shared
  // commands.
  std::map<std::string, std::vector<std::string>> lanes;
  for (int i = 0; i < 4; ++i) {
    const std::string slot = "w" + std::to_string(i);
    for (WorkerCommand command : harness_.worker(slot).history) {
      if (command.has_run_segment()) {
        command.mutable_run_segment()->mutable_shard()->clear_rank();
        lanes[slot].push_back(command.run_segment().SerializeAsString());
      } else if (command.has_connect_group()) {
        lanes[slot].push_back(command.connect_group().SerializeAsString());
      }
    }
  }
  for (const auto& [a, lane_a] : lanes) {
    for (const auto& [b, lane_b] : lanes) {
      std::vector<std::string> shared_a, shared_b;
      for (const std::string& c : lane_a) {
        if (std::count(lane_b.begin(), lane_b.end(), c) > 0) shared_a.push_back(c);
      }
      for (const std::string& c : lane_b) {
        if (std::count(lane_a.begin(), lane_a.end(), c) > 0) shared_b.push_back(c);
      }
      EXPECT_EQ(shared_a, shared_b) << a << " " << b;
    }
  }
  EXPECT_GE(lanes["w0"].size(), 11u);
}

}  // namespace
}  // namespace annulus
