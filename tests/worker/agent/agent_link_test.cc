// Registration, terms, ids in both directions, beats, the lease and reconnects.
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_harness.h"

namespace annulus {
namespace {

TEST(AgentLinkTest, RegistersFirst) {
  AgentHarness agent;
  ASSERT_EQ(agent.All<Connect>().size(), 1u);
  ASSERT_EQ(agent.SentNames(), "register");
  const auto self = agent.Sent()[0].register_();
  EXPECT_EQ(self.slot(), "worker-0");
  EXPECT_EQ(self.incarnation(), "incarnation-1");
  EXPECT_EQ(self.ticket_key(), "key of incarnation-1");
  EXPECT_EQ(agent.All<TakeIdentity>()[0].identity.incarnation, "incarnation-1");
}

TEST(AgentLinkTest, WelcomeMakesItReadyAndBeatsBegin) {
  AgentHarness agent;
  agent.Welcome(7);
  EXPECT_TRUE(agent.All<SetReady>()[0].ready);
  ASSERT_EQ(agent.Sent().size(), 1u);
  EXPECT_EQ(agent.Sent()[0].beat().sequence(), 1);
  EXPECT_EQ(agent.Sent()[0].term(), 7);
  EXPECT_EQ(agent.state().NextWake(), agent.now + absl::Seconds(1));
  agent.Tick();
  EXPECT_TRUE(agent.Sent().empty());
  agent.Advance(absl::Seconds(1));
  agent.Tick();
  EXPECT_EQ(agent.Sent()[0].beat().sequence(), 2);
}

TEST(AgentLinkTest, ACommandIsObeyedOnceAndInOrder) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  ASSERT_EQ(agent.All<OpenShard>().size(), 1u);
  agent.next_id = 1;
  agent.Reserve(2);  // An old id.
  EXPECT_TRUE(agent.All<OpenShard>().empty());
  agent.next_id = 3;
  agent.Reserve(3);  // Command 2 is missing: the stream cannot be trusted.
  EXPECT_TRUE(agent.All<OpenShard>().empty());
  EXPECT_EQ(agent.All<Disconnect>().size(), 1u);
  EXPECT_FALSE(agent.state().connected());
}

TEST(AgentLinkTest, AnOlderTermChangesNothing) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.term = 6;
  agent.Reserve(1);
  EXPECT_TRUE(agent.last.empty());
  agent.term = 8;  // A newer term without a Welcome violates the protocol.
  agent.Reserve(1);
  EXPECT_TRUE(agent.All<OpenShard>().empty());
  EXPECT_EQ(agent.All<Disconnect>().size(), 1u);
}

TEST(AgentLinkTest, EventsAreSentAgainInOrderUntilAcknowledged) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Drop(1);
  agent.Drop(2);
  EXPECT_EQ(agent.Sent()[0].id(), 2);
  agent.Lose(absl::UnavailableError("gone"));
  agent.Advance(absl::Milliseconds(75));
  agent.Tick();
  ASSERT_EQ(agent.SentNames(), "register");
  EXPECT_EQ(agent.Sent()[0].ack(), 2);
  EXPECT_EQ(agent.Sent()[0].term(), 7);
  agent.Welcome(7, /*ack=*/1);
  ASSERT_EQ(agent.SentNames(), "dropped");
  EXPECT_EQ(agent.Sent()[0].id(), 2);
  EXPECT_EQ(agent.Sent()[0].dropped().shard().job_id(), "job-2");
}

TEST(AgentLinkTest, ANewTermStartsNumbersAgain) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Drop(1);
  agent.Lose(absl::UnavailableError("gone"));
  agent.Advance(absl::Seconds(1));
  agent.Tick();
  agent.Welcome(9);
  EXPECT_EQ(agent.SentNames(), "");  // Unacknowledged events of the old term are dropped.
  agent.Drop(5);
  EXPECT_EQ(agent.Sent()[0].id(), 1);
  EXPECT_EQ(agent.Sent()[0].term(), 9);
  agent.Lose(absl::UnavailableError("gone"));
  agent.Advance(absl::Seconds(1));
  agent.Tick();
  agent.Welcome(8);  // An earlier coordinator: its commands are not executed.
  EXPECT_FALSE(agent.state().connected());
}

TEST(AgentLinkTest, RetriesGrowAndAreBounded) {
  AgentHarness agent;
  absl::Duration last = absl::ZeroDuration();
  for (int i = 0; i < 12; ++i) {
    agent.Lose(absl::UnavailableError("refused"));
    EXPECT_TRUE(agent.All<Connect>().empty());
    const absl::Duration wait = agent.state().NextWake() - agent.now;
    EXPECT_GE(wait, last);
    EXPECT_LE(wait, absl::Seconds(5));
    last = wait;
    agent.Advance(wait);
    agent.Tick();
    EXPECT_EQ(agent.All<Connect>().size(), 1u);
  }
  EXPECT_GT(last, absl::Seconds(2));
}

TEST(AgentLinkTest, ASilentCoordinatorIsGivenUp) {
  AgentHarness agent;
  agent.Advance(absl::Seconds(30));
  agent.Tick();
  EXPECT_EQ(agent.All<Disconnect>().size(), 1u);
}

TEST(AgentLinkTest, ASilentCoordinatorIsGivenUpWhateverHappensFirst) {
  AgentHarness agent;
  agent.Advance(absl::Seconds(30));
  agent.Handle(ShardFreed{AgentHarness::Id(1)});
  EXPECT_EQ(agent.All<Disconnect>().size(), 1u);
}

TEST(AgentLinkTest, AnsweredBeatsKeepTheLease) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  agent.Live(absl::Seconds(60));
  EXPECT_TRUE(agent.state().connected());
  EXPECT_EQ(agent.state().shards(), 1u);
}

TEST(AgentLinkTest, WithoutAnswersItFencesItself) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  agent.Advance(absl::Milliseconds(2600));
  agent.Tick();
  EXPECT_TRUE(agent.All<CloseShard>().empty());
  agent.Advance(absl::Milliseconds(101));  // 0.9 × the lease.
  agent.Tick();
  ASSERT_EQ(agent.All<CloseShard>().size(), 1u);
  EXPECT_EQ(agent.All<CloseShard>()[0].why.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(DetailOf(agent.All<CloseShard>()[0].why).retry_after.has_value());
  EXPECT_EQ(agent.All<Disconnect>().size(), 1u);
  EXPECT_FALSE(agent.All<SetReady>()[0].ready);
}

TEST(AgentLinkTest, AStoppedProcessFencesBeforeItObeys) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Advance(absl::Seconds(10));
  agent.Reserve(1);  // In transit while the process was stopped.
  EXPECT_TRUE(agent.All<OpenShard>().empty());
  EXPECT_EQ(agent.state().shards(), 0u);
}

TEST(AgentLinkTest, AFencedWorkerComesBackAsAnotherWhenAllIsFreed) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  agent.Advance(absl::Seconds(3));
  agent.Tick();
  agent.Advance(absl::Seconds(10));
  agent.Tick();
  EXPECT_TRUE(agent.All<Connect>().empty());
  agent.Handle(ShardFreed{AgentHarness::Id(1)});
  ASSERT_EQ(agent.SentNames(), "register");
  EXPECT_EQ(agent.Sent()[0].register_().incarnation(), "incarnation-2");
  EXPECT_EQ(agent.Sent()[0].register_().resident_shards_size(), 0);
  EXPECT_EQ(agent.Sent()[0].register_().highest_term(), 7);
  EXPECT_EQ(agent.All<TakeIdentity>().size(), 1u);
  agent.Welcome(7);
  agent.Reserve(2);
  EXPECT_EQ(agent.All<OpenShard>().size(), 1u);
}

TEST(AgentLinkTest, AReconnectInsideTheLeaseKeepsEverything) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  agent.Lose(absl::UnavailableError("gone"));
  EXPECT_FALSE(agent.All<SetReady>()[0].ready);
  agent.Advance(absl::Seconds(1));
  agent.Tick();
  ASSERT_EQ(agent.Sent()[0].register_().resident_shards_size(), 1);
  EXPECT_EQ(agent.Sent()[0].register_().incarnation(), "incarnation-1");
  agent.Welcome(7);
  agent.next_id = 2;
  agent.Drop(1);
  EXPECT_EQ(agent.All<CloseShard>().size(), 1u);
}

// The coordinator's lease began when it got the request, and shards must not outlive it.
TEST(AgentLinkTest, ALateWelcomeIsNoLongerLease) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.AnswerBeat(1);
  agent.Reserve(1);
  agent.Lose(absl::UnavailableError("gone"));
  agent.Advance(absl::Milliseconds(500));
  agent.Tick();
  ASSERT_EQ(agent.SentNames(), "register");
  agent.Advance(absl::Seconds(2));
  agent.Welcome(7);  // It was in transit for long, and the following beat is lost.
  agent.Advance(absl::Milliseconds(600));
  agent.Tick();
  EXPECT_TRUE(agent.All<CloseShard>().empty());
  agent.Advance(absl::Milliseconds(101));  // 2.7 s since the Register.
  agent.Tick();
  EXPECT_EQ(agent.All<CloseShard>().size(), 1u);
}

TEST(AgentLinkTest, WhoHasNoLeaseMayWaitLongForTheCoordinator) {
  AgentHarness agent;
  agent.Advance(absl::Seconds(20));
  agent.Welcome(7);
  agent.Advance(absl::Milliseconds(2600));
  agent.Tick();
  EXPECT_TRUE(agent.state().connected());
}

TEST(AgentLinkTest, LateWordsOfAnOlderStreamAreStale) {
  AgentHarness agent;
  agent.Welcome(7);
  agent.Reserve(1);
  const int64_t older = agent.stream;
  agent.Lose(absl::UnavailableError("gone"));
  agent.Advance(absl::Seconds(1));
  agent.Tick();
  ASSERT_NE(agent.stream, older);
  agent.Welcome(7);
  agent.Handle(LinkClosed{older, absl::AbortedError("your lease is over")});
  EXPECT_FALSE(agent.state().fenced());
  EXPECT_TRUE(agent.state().connected());
  control::v1::WorkerCommand drop;
  drop.set_term(7);
  drop.set_id(2);
  *drop.mutable_drop()->mutable_shard() = AgentHarness::Key(1);
  agent.Handle(CommandArrived{older, drop});
  EXPECT_EQ(agent.state().shards(), 1u);
  agent.Handle(CommandArrived{agent.stream, drop});
  EXPECT_EQ(agent.All<CloseShard>().size(), 1u);
}

TEST(AgentLinkTest, AStreamThatWasGivenUpSaysNothingMore) {
  AgentHarness agent;
  agent.Advance(absl::Seconds(30));
  agent.Tick();
  ASSERT_EQ(agent.All<Disconnect>().size(), 1u);
  agent.Lose(absl::FailedPreconditionError("protocol 9 is needed"));
  EXPECT_TRUE(agent.All<Exit>().empty());
}

TEST(AgentLinkTest, TheCoordinatorMayGiveItUpOrRefuseIt) {
  AgentHarness lost;
  lost.Welcome(7);
  lost.Lose(absl::AbortedError("your lease is over"));
  lost.Advance(absl::Seconds(1));
  lost.Tick();
  EXPECT_EQ(lost.Sent()[0].register_().incarnation(), "incarnation-2");
  AgentHarness refused;
  refused.Lose(absl::FailedPreconditionError("protocol 9 is needed"));
  ASSERT_EQ(refused.All<Exit>().size(), 1u);
  EXPECT_EQ(refused.All<Exit>()[0].code, 1);
}

}  // namespace
}  // namespace annulus
