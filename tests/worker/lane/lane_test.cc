#include "worker/lane/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "proto/wire/convert.h"
#include "tests/worker/lane/lane_fixture.h"

namespace annulus {
namespace {

TEST_F(LaneTest, AGroupGivesWhatOneRankGives) {
  Make(3);
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 3; ++rank) {
    hosts_[rank]->lane().Command(Segment("job", rank, 0, 1, false));
    hosts_[rank]->lane().Command(Segment("job", rank, 1, steps, true));
  }
  LaneHost alone(&hub_);
  const ShardWork whole = alone.Work(LaneSpec(24), 0, 1);
  alone.RunSolo(whole);
  ASSERT_TRUE(alone.log.Wait(Event::kOutputReady).has_value());
  for (TensorId id : {TensorId::kOut, TensorId::kLse}) {
    std::vector<float> parts;
    for (int rank = 0; rank < 3; ++rank) {
      if (id == TensorId::kOut) {
        ASSERT_TRUE(hosts_[rank]->log.Wait(Event::kOutputReady).has_value());
      }
      const std::vector<float> part = LaneHost::Output(*works_[rank].staged, id);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    const std::vector<float> wanted = LaneHost::Output(*whole.staged, id);
    ASSERT_EQ(parts.size(), wanted.size());
    for (size_t i = 0; i < parts.size(); ++i) ASSERT_NEAR(parts[i], wanted[i], 1e-5) << i;
  }
  for (auto& host : hosts_) {
    EXPECT_EQ(host->log.Count(Event::kSegmentDone), 2);
    EXPECT_EQ(host->device().used_bytes(), 0);
  }
}

// A shard that is kept, or not yet fetched, holds no program.
TEST_F(LaneTest, NothingStaysOfAPlanThatHasRun) {
  Make(2);
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 2; ++rank) {
    hosts_[rank]->lane().Command(Segment("job", rank, 0, steps, true));
  }
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(hosts_[rank]->log.Wait(Event::kOutputReady).has_value());
    const std::shared_ptr<StagedShard>& staged = works_[rank].staged;
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (staged.use_count() > 1 && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(staged.use_count(), 1) << "the lane has it";
    hosts_[rank]->lane().Release({"job", 1, rank});
  }
}

TEST_F(LaneTest, WhatIsDoneBesideItShowsToo) {
  Gate opening, allocating;
  LaneHost::Options options;
  options.before_open = [&] { opening.Pass(); };
  options.before_allocate = [&] { allocating.Pass(); };
  InProcessHub::Options hub;
  hub.size = 1;
  hub_ = std::make_shared<InProcessHub>(hub);
  LaneHost host(&hub_, std::move(options));
  EXPECT_FALSE(host.lane().side_gauge()->Read().busy);
  Command open;
  *open.mutable_open_group()->mutable_generation() = GenerationOf(Group());
  open.mutable_open_group()->set_size(1);
  host.lane().Command(open);
  ASSERT_TRUE(opening.AwaitOne());
  EXPECT_TRUE(host.lane().side_gauge()->Read().busy);
  EXPECT_EQ(host.lane().side_gauge()->Read().what, "OpenGroup");
  opening.Open();
  host.lane().Prepare(host.Work(LaneSpec(24), 0, 1));
  ASSERT_TRUE(allocating.AwaitOne());
  const LaneGauge::Reading reading = host.lane().side_gauge()->Read();
  EXPECT_TRUE(reading.busy);
  EXPECT_EQ(reading.what, "Prepare");
  EXPECT_EQ(reading.shard.job_id, "job");
  allocating.Open();
  EXPECT_TRUE(host.log.Wait(Event::kPrepared).has_value());
  EXPECT_FALSE(host.lane().side_gauge()->Read().busy);
}

TEST_F(LaneTest, DigestsOfPeersMatch) {
  Make(3);
  Prepare("job");
  for (int a = 0; a < 3; ++a) {
    EXPECT_GT(prepared_[a].digests_size(), 0);
    for (const auto& digest : prepared_[a].digests()) {
      int found = 0;
      for (const auto& other : prepared_[digest.peer()].digests()) {
        if (other.peer() != a) continue;
        ++found;
        EXPECT_EQ(digest.sends(), other.receives());
      }
      EXPECT_EQ(found, 1) << digest.peer() << " of " << a;
    }
    EXPECT_GT(prepared_[a].arena_bytes(), 0);
    EXPECT_EQ(hosts_[a]->device().used_bytes(), prepared_[a].arena_bytes());
  }
}

TEST_F(LaneTest, AbortOvertakesARankThatWaitsForItsPeer) {
  Make(2);
  Form();
  const int steps = Prepare("job");
  hosts_[0]->lane().Command(Segment("job", 0, 0, steps, true));  // Rank 1 never runs.
  hosts_[0]->lane().Command(Segment("job", 0, steps, steps, true));
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!hub_->Waits(0) && absl::Now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(hub_->Waits(0));
  hosts_[0]->lane().Command(End(/*abort=*/true));
  hosts_[1]->lane().Command(End(/*abort=*/true));
  for (auto& host : hosts_) {
    ASSERT_TRUE(host->log.Wait(Event::kGroupClosed).has_value());
    EXPECT_EQ(host->log.Count(Event::kGroupBroken), 0);
    EXPECT_FALSE(host->lane().groups().OldestAbort().has_value());
  }
  Form();  // The next generation works.
  Prepare("again");
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("again", rank, 0, steps, true));
  for (auto& host : hosts_) EXPECT_TRUE(host->log.Wait(Event::kOutputReady).has_value());
}

// Workers are in several groups; the lane runs a job of another group.
TEST_F(LaneTest, AnAbortThatWaitsBehindAnotherGroupsJobHangsNowhere) {
  Gate gate;
  Make(1, HeldUpBy(&gate));
  Form();
  const Command abort_idle = End(/*abort=*/true);
  Form();
  const int steps = Prepare("job");
  Lane& lane = hosts_[0]->lane();
  lane.Command(Segment("job", 0, 0, steps, true));
  ASSERT_TRUE(gate.AwaitOne());
  lane.Command(abort_idle);
  EXPECT_FALSE(lane.groups().OldestAbort().has_value());
  const absl::Time before = absl::Now();
  lane.Command(End(/*abort=*/true));  // This abort has to end the job.
  EXPECT_GE(lane.groups().OldestAbort().value_or(absl::InfinitePast()), before);
  gate.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(hosts_[0]->log.Wait(Event::kGroupClosed).has_value());
  EXPECT_FALSE(lane.groups().OldestAbort().has_value());
}

TEST_F(LaneTest, ARankIsPatientWhereStepsAreLong) {
  LaneHost::Options options;
  options.step_timeout = absl::ZeroDuration();
  Make(1, options);
  Add(options);
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 2; ++rank) {
    Lane& lane = hosts_[rank]->lane();
    lane.Command(Segment("job", rank, 0, 0, false));  // Each lane uses the patience of its command.
    Command segment = Segment("job", rank, 0, steps, true);
    segment.mutable_run_segment()->mutable_longest_step()->set_seconds(20);
    lane.Command(segment);
    if (rank == 1) break;
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (lane.gauge()->Read().patience != absl::Seconds(40) && absl::Now() < deadline)
      std::this_thread::yield();
    EXPECT_TRUE(lane.gauge()->Read().busy);
    EXPECT_EQ(lane.gauge()->Read().patience, absl::Seconds(40));
    const absl::Time late = absl::Now() + absl::Milliseconds(50);  // Its peer has patience.
    while (absl::Now() < late) std::this_thread::yield();
  }
  for (auto& host : hosts_) {
    EXPECT_TRUE(host->log.Wait(Event::kOutputReady).has_value());
    EXPECT_EQ(host->log.Count(Event::kGroupBroken), 0);
  }
}

TEST_F(LaneTest, ARankIsPatientWhileItConnects) {
  InProcessHub::Options two;
  two.size = 2;
  hub_ = std::make_shared<InProcessHub>(two);
  LaneHost host(&hub_);
  const auto other = hub_->MakeCommunicator(1);  // The other rank does not connect.
  Command open, connect;
  *open.mutable_open_group()->mutable_generation() = GenerationOf(Group());
  open.mutable_open_group()->set_size(2);
  host.lane().Command(open);
  const auto opened = host.log.Wait(Event::kGroupOpened);
  ASSERT_TRUE(opened.has_value());
  *connect.mutable_connect_group()->mutable_generation() = GenerationOf(Group());
  connect.mutable_connect_group()->mutable_timeout()->set_seconds(300);
  connect.mutable_connect_group()->add_bootstraps(opened->group_opened().bootstrap());
  connect.mutable_connect_group()->add_bootstraps(*other->Bootstrap());
  host.lane().Command(connect);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!host.lane().gauge()->Read().busy && absl::Now() < deadline) std::this_thread::yield();
  const LaneGauge::Reading reading = host.lane().gauge()->Read();
  EXPECT_TRUE(reading.busy);
  EXPECT_EQ(reading.what, "ConnectGroup");
  EXPECT_EQ(reading.patience, absl::Seconds(300));
  host.lane().Command(End(/*abort=*/true));
  EXPECT_TRUE(host.log.Wait(Event::kGroupClosed).has_value());
}

TEST_F(LaneTest, AnUnpreparedShardBreaksTheGroup) {
  Make(2);
  Form();
  hosts_[0]->lane().Command(Segment("nobody", 0, 0, 1, true));
  const auto broken = hosts_[0]->log.Wait(Event::kGroupBroken);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->group_broken().suspect_rank(), -1);
  hosts_[0]->lane().Command(End(/*abort=*/false));
  EXPECT_TRUE(hosts_[0]->log.Wait(Event::kGroupClosed).has_value());
}

TEST_F(LaneTest, ASegmentOutOfOrderBreaksTheGroup) {
  Make(2);
  Form();
  const int steps = Prepare("job");
  hosts_[0]->lane().Command(Segment("job", 0, 1, steps, true));
  EXPECT_TRUE(hosts_[0]->log.Wait(Event::kGroupBroken).has_value());
}

TEST_F(LaneTest, ALostPeerBreaksTheGroup) {
  Make(2);
  Form();
  const int steps = Prepare("job");
  hosts_[1]->DestroyLane();
  hosts_[0]->lane().Command(Segment("job", 0, 0, steps, true));
  const auto broken = hosts_[0]->log.Wait(Event::kGroupBroken);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->group_broken().suspect_rank(), 1);
  EXPECT_EQ(broken->group_broken().shard().job_id(), "job");
  EXPECT_EQ(hosts_[0]->log.Count(Event::kOutputReady), 0);
}

TEST_F(LaneTest, ReleaseGivesAllMemoryBack) {
  Make(1);
  for (int i = 0; i < 10; ++i) {
    hosts_[0]->lane().Prepare(hosts_[0]->Work(LaneSpec(24), 0, 1, std::to_string(i)));
    hosts_[0]->lane().Release({std::to_string(i), 1, 0});
  }
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(hosts_[0]->log.Wait(Event::kPrepared).has_value());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (hosts_[0]->device().used_bytes() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(hosts_[0]->device().used_bytes(), 0);
  hosts_[0]->DestroyLane();
  EXPECT_EQ(hosts_[0]->staging().used_bytes(), 0);
}

TEST_F(LaneTest, ADeviceWithoutRoomFailsTheShard) {
  LaneHost::Options options;
  options.device_bytes = 100;
  LaneHost host(&hub_, std::move(options));
  host.lane().Prepare(host.Work(LaneSpec(24), 0, 1));
  const auto failed = host.log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().error().reason(), "BUDGET_EXCEEDED");
  host.RunSolo(host.Work(LaneSpec(24), 0, 1, "solo"));
  EXPECT_TRUE(host.log.Wait(Event::kShardFailed).has_value());
  EXPECT_EQ(host.device().used_bytes(), 0);
}

TEST_F(LaneTest, MoreThanMayWaitIsToldToComeLater) {
  LaneHost::Options options;
  options.max_waiting = 0;
  LaneHost host(&hub_, std::move(options));
  host.lane().Prepare(host.Work(LaneSpec(24), 0, 1));
  host.RunSolo(host.Work(LaneSpec(24), 0, 1, "solo"));
  for (int i = 0; i < 2; ++i) {
    const auto failed = host.log.Wait(Event::kShardFailed);
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(failed->shard_failed().error().reason(), "QUEUE_FULL");
    EXPECT_TRUE(failed->shard_failed().error().has_retry_after());
  }
}

TEST_F(LaneTest, AbortEndsAShardThatIsBeingCopied) {
  std::atomic<int> copies{0};
  std::function<void()> before_copy = [] {};
  LaneHost::Options options;
  options.before_copy = [&] { before_copy(); };
  Make(2, std::move(options));
  Form();
  const int steps = Prepare("job");
  before_copy = [&] {
    if (++copies == 1) hosts_[0]->lane().Command(End(/*abort=*/true));
  };
  hosts_[0]->lane().Command(Segment("job", 0, 0, steps, true));
  ASSERT_TRUE(hosts_[0]->log.Wait(Event::kGroupClosed).has_value());
  EXPECT_EQ(copies.load(), 1);
  EXPECT_EQ(hosts_[0]->log.Count(Event::kOutputReady), 0);
}

}  // namespace
}  // namespace annulus
