// Shards, groups and leaving.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/worker/agent/agent_harness.h"

namespace annulus {
namespace {

using Command = AgentHarness::Command;
using Event = AgentHarness::Event;

control::v1::Generation Generation(int64_t number) { return GenerationOf({7, number}); }

class AgentJobsTest : public testing::Test {
 protected:
  AgentJobsTest() { agent_.Welcome(7); }

  void OrderGroup(int64_t number, const std::string& what) {
    Command command;
    control::v1::Generation* generation =
        what == "open"      ? command.mutable_open_group()->mutable_generation()
        : what == "connect" ? command.mutable_connect_group()->mutable_generation()
        : what == "close"   ? command.mutable_close_group()->mutable_generation()
                            : command.mutable_abort_group()->mutable_generation();
    *generation = Generation(number);
    agent_.Order(command);
  }
  Event GroupFact(int64_t number, const std::string& what) {
    Event fact;
    control::v1::Generation* generation =
        what == "opened"      ? fact.mutable_group_opened()->mutable_generation()
        : what == "connected" ? fact.mutable_group_connected()->mutable_generation()
        : what == "broken"    ? fact.mutable_group_broken()->mutable_generation()
                              : fact.mutable_group_closed()->mutable_generation();
    *generation = Generation(number);
    return fact;
  }
  Event ShardFact(int n, const std::string& what) {
    Event fact;
    control::v1::ShardKey* key =
        what == "prepared"   ? fact.mutable_prepared()->mutable_shard()
        : what == "segment"  ? fact.mutable_segment_done()->mutable_shard()
        : what == "ready"    ? fact.mutable_output_ready()->mutable_shard()
        : what == "drained"  ? fact.mutable_output_drained()->mutable_shard()
        : what == "complete" ? fact.mutable_shard_complete()->mutable_shard()
                             : fact.mutable_shard_failed()->mutable_shard();
    *key = AgentHarness::Key(n);
    return fact;
  }
  Event Ready(int n) {
    Event fact = ShardFact(n, "ready");
    fact.mutable_output_ready()->mutable_report()->set_backend("cpu/test");
    return fact;
  }
  void Prepare(int n) {
    Command command;
    *command.mutable_prepare()->mutable_shard() = AgentHarness::Key(n);
    agent_.Order(command);
  }

  AgentHarness agent_;
};

TEST_F(AgentJobsTest, ASoloShardNeedsNoCommand) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  EXPECT_EQ(agent_.SentNames(), "") << "its outputs will say so";
  agent_.Advance(absl::Milliseconds(2));
  agent_.Report(Ready(1));
  EXPECT_EQ(agent_.SentNames(), "") << "the end will say so";
  agent_.Advance(absl::Milliseconds(2));
  agent_.Report(ShardFact(1, "drained"));
  EXPECT_EQ(agent_.All<CloseShard>().size(), 1u);
  EXPECT_EQ(agent_.SentNames(), "") << "not before it is freed";
  agent_.Advance(absl::Milliseconds(10));
  agent_.Tick();
  EXPECT_EQ(agent_.SentNames(), "");
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  ASSERT_EQ(agent_.SentNames(), "output_drained");
  EXPECT_EQ(agent_.Sent()[0].output_drained().report().backend(), "cpu/test");
  EXPECT_EQ(agent_.Sent()[0].output_drained().age().nanos(), 12000000);
  EXPECT_EQ(agent_.state().shards(), 0u);
}

TEST_F(AgentJobsTest, ASoloShardThatIsKeptStaysUntilItIsDropped) {
  agent_.Reserve(1, /*solo=*/true, /*keep=*/true);
  agent_.Complete(1);
  agent_.Report(Ready(1));
  EXPECT_EQ(agent_.SentNames(), "");
  agent_.Report(ShardFact(1, "drained"));
  ASSERT_EQ(agent_.SentNames(), "output_ready output_drained") << "all that was not told";
  EXPECT_EQ(agent_.Sent()[0].output_ready().report().backend(), "cpu/test");
  EXPECT_TRUE(agent_.All<CloseShard>().empty());
  agent_.Advance(absl::Seconds(1));
  agent_.Tick();
  EXPECT_EQ(agent_.SentNames(), "") << "nothing is told twice";
  EXPECT_EQ(agent_.state().shards(), 1u);
  agent_.Drop(1);
  EXPECT_EQ(agent_.All<CloseShard>().size(), 1u);
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent_.SentNames(), "dropped");
}

TEST_F(AgentJobsTest, OutputsThatNobodyFetchesAreToldOfInTime) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  agent_.Advance(absl::Milliseconds(5));
  agent_.Tick();
  EXPECT_EQ(agent_.SentNames(), "shard_complete");
  agent_.Advance(absl::Seconds(2));
  agent_.Report(Ready(1));
  EXPECT_EQ(agent_.SentNames(), "");
  EXPECT_EQ(agent_.state().NextWake(), agent_.now + absl::Milliseconds(5));
  agent_.Advance(absl::Milliseconds(5));
  agent_.Tick();
  ASSERT_EQ(agent_.SentNames(), "output_ready");
  EXPECT_EQ(agent_.Sent()[0].output_ready().report().backend(), "cpu/test");
  EXPECT_EQ(agent_.Sent()[0].output_ready().age().nanos(), 5000000);
  agent_.Report(ShardFact(1, "drained"));
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  ASSERT_EQ(agent_.SentNames(), "output_drained");
  EXPECT_FALSE(agent_.Sent()[0].output_drained().has_report()) << "it was told";
}

TEST_F(AgentJobsTest, OutputsAreToldOfBeforeTheyAreAbandoned) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  agent_.Report(Ready(1));
  EXPECT_EQ(agent_.SentNames(), "");
  Event abandoned;
  *abandoned.mutable_shard_abandoned()->mutable_shard() = AgentHarness::Key(1);
  agent_.Report(abandoned);
  EXPECT_EQ(agent_.SentNames(), "output_ready shard_abandoned");
}

TEST_F(AgentJobsTest, ALongSoloRunIsToldOfInTime) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Reserve(2, /*solo=*/true);
  agent_.Complete(1);
  const absl::Time told = agent_.now + absl::Milliseconds(5);
  EXPECT_EQ(agent_.state().NextWake(), told);
  agent_.Advance(absl::Milliseconds(3));
  agent_.Complete(2);
  agent_.Advance(absl::Milliseconds(2));
  agent_.Tick();
  ASSERT_EQ(agent_.SentNames(), "shard_complete");
  EXPECT_EQ(agent_.Sent()[0].shard_complete().shard().job_id(), "job-1");
  agent_.Drop(2);
  agent_.Advance(absl::Seconds(1));
  agent_.Tick();
  EXPECT_EQ(agent_.SentNames(), "") << "nobody asks for a dropped one";
}

TEST_F(AgentJobsTest, ADropOfWhatIsBeingFreedIsAnsweredOnce) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  agent_.Report(ShardFact(1, "ready"));
  agent_.Report(ShardFact(1, "drained"));
  agent_.Drop(1);
  EXPECT_TRUE(agent_.last.empty()) << "it is closed already";
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent_.SentNames(), "dropped");
}

TEST_F(AgentJobsTest, ADropThatCrossesTheEndIsAnswered) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  agent_.Report(ShardFact(1, "ready"));
  agent_.Report(ShardFact(1, "drained"));
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent_.SentNames(), "output_drained");
  agent_.Drop(1);
  EXPECT_EQ(agent_.SentNames(), "dropped");
}

TEST_F(AgentJobsTest, AGroupShardWaitsForCommands) {
  agent_.Reserve(1);
  agent_.Complete(1);
  Prepare(1);
  EXPECT_EQ(agent_.All<PrepareShard>().size(), 1u);
  agent_.Report(ShardFact(1, "prepared"));
  EXPECT_EQ(agent_.SentNames(), "prepared");
  Command run;
  *run.mutable_run_segment()->mutable_shard() = AgentHarness::Key(1);
  agent_.Order(run);
  EXPECT_EQ(agent_.All<CommandGroup>().size(), 1u);
  agent_.Report(ShardFact(1, "segment"));
  EXPECT_EQ(agent_.SentNames(), "segment_done");
}

TEST_F(AgentJobsTest, ADeliveredGroupShardStaysUntilItsDrop) {
  agent_.Reserve(1);
  agent_.Complete(1);
  Prepare(1);
  agent_.Report(ShardFact(1, "ready"));
  agent_.Report(ShardFact(1, "drained"));
  EXPECT_EQ(agent_.SentNames(), "output_drained");
  EXPECT_TRUE(agent_.All<CloseShard>().empty());
  agent_.Drop(1);
  EXPECT_EQ(agent_.All<CloseShard>().size(), 1u);
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent_.SentNames(), "dropped");
}

TEST_F(AgentJobsTest, PrepareOfWhatIsNotThereFails) {
  Prepare(3);
  ASSERT_EQ(agent_.SentNames(), "shard_failed");
  EXPECT_EQ(agent_.Sent()[0].shard_failed().error().reason(), "SHARD_NOT_FOUND");
  agent_.Reserve(4);
  Prepare(4);  // Its rows have not arrived.
  EXPECT_EQ(agent_.SentNames(), "shard_failed");
}

TEST_F(AgentJobsTest, AFactIsToldOnce) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Complete(1);
  agent_.Complete(1);
  EXPECT_TRUE(agent_.last.empty());
}

TEST_F(AgentJobsTest, FactsOfAnotherAttemptChangeNothing) {
  agent_.Reserve(1);
  Event fact = ShardFact(1, "complete");
  fact.mutable_shard_complete()->mutable_shard()->set_attempt(2);
  agent_.Report(fact);
  EXPECT_TRUE(agent_.last.empty());
}

TEST_F(AgentJobsTest, FactsAfterDropChangeNothing) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Drop(1);
  agent_.Drop(1);
  EXPECT_TRUE(agent_.All<CloseShard>().empty());
  for (const char* what : {"complete", "ready", "drained", "failed", "segment"}) {
    agent_.Report(ShardFact(1, what));
    EXPECT_TRUE(agent_.last.empty()) << what;
  }
}

TEST_F(AgentJobsTest, DropOfNothingIsAnsweredAtOnce) {
  agent_.Drop(9);
  EXPECT_EQ(agent_.SentNames(), "dropped");
}

TEST_F(AgentJobsTest, AGroupLivesFromOpenToClose) {
  OrderGroup(1, "open");
  EXPECT_EQ(agent_.All<CommandGroup>().size(), 1u);
  agent_.Report(GroupFact(1, "opened"));
  EXPECT_EQ(agent_.SentNames(), "group_opened");
  OrderGroup(1, "connect");
  agent_.Report(GroupFact(1, "connected"));
  EXPECT_EQ(agent_.SentNames(), "group_connected");
  OrderGroup(1, "close");
  OrderGroup(1, "close");
  EXPECT_TRUE(agent_.All<CommandGroup>().empty());
  OrderGroup(1, "abort");  // The close hangs because of a lost peer.
  EXPECT_EQ(agent_.All<CommandGroup>().size(), 1u);
  agent_.Report(GroupFact(1, "broken"));
  EXPECT_EQ(agent_.SentNames(), "");
  agent_.Report(GroupFact(1, "closed"));
  EXPECT_EQ(agent_.SentNames(), "group_closed");
  EXPECT_EQ(agent_.state().groups(), 0u);
  OrderGroup(1, "abort");
  EXPECT_EQ(agent_.SentNames(), "group_closed");
}

TEST_F(AgentJobsTest, FencingAbortsGroupsAndWaitsForThem) {
  OrderGroup(1, "open");
  agent_.Advance(absl::Seconds(4));
  agent_.Tick();
  ASSERT_EQ(agent_.All<CommandGroup>().size(), 1u);
  EXPECT_TRUE(agent_.All<CommandGroup>()[0].command.has_abort_group());
  agent_.Advance(absl::Seconds(1));
  agent_.Report(GroupFact(1, "closed"));
  EXPECT_EQ(agent_.SentNames(), "register");
}

TEST_F(AgentJobsTest, AnIdleWorkerLeavesWhenItIsReleased) {
  agent_.Handle(Terminated{});
  EXPECT_EQ(agent_.SentNames(), "leaving");
  EXPECT_FALSE(agent_.All<SetReady>()[0].ready);
  EXPECT_TRUE(agent_.All<Exit>().empty());
  Command drain;
  drain.mutable_drain();
  agent_.Order(drain);
  ASSERT_EQ(agent_.All<Exit>().size(), 1u);
  EXPECT_EQ(agent_.All<Exit>()[0].code, 0);
}

TEST_F(AgentJobsTest, ABusyWorkerFinishesFirst) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Handle(Terminated{});
  Command drain;
  drain.mutable_drain();
  agent_.Order(drain);
  EXPECT_TRUE(agent_.All<Exit>().empty());
  agent_.Drop(1);
  agent_.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent_.SentNames(), "dropped");
  EXPECT_EQ(agent_.All<Exit>().size(), 1u);
}

TEST_F(AgentJobsTest, TheDrainHasAnEnd) {
  agent_.Reserve(1, /*solo=*/true);
  agent_.Handle(Terminated{});
  agent_.Live(absl::Seconds(29));
  EXPECT_TRUE(agent_.All<Exit>().empty());
  agent_.Advance(absl::Seconds(1));
  agent_.Tick();
  EXPECT_EQ(agent_.All<CloseShard>().size(), 1u);
  ASSERT_EQ(agent_.All<Exit>().size(), 1u);
  EXPECT_EQ(agent_.All<Exit>()[0].code, 0);
}

TEST_F(AgentJobsTest, WhoIsCutOffHearsWhenToComeAgain) {
  agent_.Reserve(1);
  agent_.Handle(Terminated{});
  agent_.Handle(Terminated{});
  ASSERT_EQ(agent_.All<CloseShard>().size(), 1u);
  const absl::Status why = agent_.All<CloseShard>()[0].why;
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailOf(why).reason, "DRAINING");
  EXPECT_TRUE(DetailOf(why).retry_after.has_value());
}

TEST_F(AgentJobsTest, ASecondSignalCutsTheDrainShort) {
  agent_.Reserve(1);
  agent_.Handle(Terminated{});
  agent_.Handle(Terminated{});
  EXPECT_EQ(agent_.All<Exit>().size(), 1u);
}

TEST_F(AgentJobsTest, OfOneThatLeavesByItselfTheFirstSignalCutsNothingShort) {
  agent_.Reserve(1);
  agent_.Handle(Terminated{/*asked=*/false});
  agent_.Handle(Terminated{});
  EXPECT_TRUE(agent_.All<Exit>().empty());
  agent_.Handle(Terminated{});
  EXPECT_EQ(agent_.All<Exit>().size(), 1u);
}

TEST_F(AgentJobsTest, AMemberOfAGroupStaysUntilTheGroupIsClosed) {
  OrderGroup(1, "open");
  agent_.Report(GroupFact(1, "opened"));
  agent_.Handle(Terminated{});
  for (int second = 0; second < 20; ++second) {  // Much longer than a lease.
    agent_.Live(absl::Seconds(1));
    ASSERT_TRUE(agent_.All<Exit>().empty()) << second;
  }
  OrderGroup(1, "close");
  agent_.Report(GroupFact(1, "closed"));
  EXPECT_EQ(agent_.All<Exit>().size(), 1u);
}

TEST_F(AgentJobsTest, ADrainThatAGroupOutlivesTookTooLong) {
  OrderGroup(1, "open");
  agent_.Report(GroupFact(1, "opened"));
  agent_.Handle(Terminated{});
  agent_.Live(absl::Seconds(30));
  agent_.Tick();
  ASSERT_EQ(agent_.All<Exit>().size(), 1u);
  EXPECT_EQ(agent_.All<Exit>()[0].why,
            "the drain took too long: 0 shards and 1 groups were ended early");
}

TEST_F(AgentJobsTest, WithoutACoordinatorItLeavesAtOnce) {
  agent_.Lose(absl::UnavailableError("gone"));
  agent_.Handle(Terminated{});
  EXPECT_EQ(agent_.All<Exit>().size(), 1u);
}

}  // namespace
}  // namespace annulus
