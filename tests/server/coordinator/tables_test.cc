#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/coordinator/state/command.h"
#include "server/coordinator/state/fair_queue.h"
#include "server/coordinator/state/group_table.h"
#include "server/coordinator/state/memory_ledger.h"
#include "server/coordinator/state/timers.h"
#include "server/coordinator/state/worker_table.h"

namespace annulus {
namespace {

TEST(CommandLogTest, NumbersDenselyAndKeepsWhatIsNotAcknowledged) {
  CommandLog log({/*commands=*/2, /*bytes=*/1000});
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(log.Append({}).message.id(), i);
  EXPECT_TRUE(log.overflown());
  log.Acknowledge(2);
  ASSERT_EQ(log.unacknowledged().size(), 1u);
  EXPECT_EQ(log.unacknowledged()[0].message.id(), 3);
  log.Acknowledge(99);  // Never sent.
  EXPECT_EQ(log.unacknowledged().size(), 1u);
  EXPECT_FALSE(log.overflown());
}

TEST(CommandLogTest, BytesAreBoundedAndSpecsCount) {
  CommandLog log({/*commands=*/100, /*bytes=*/1000});
  Command command;
  command.message.mutable_reserve()->set_principal("alice");
  command.spec = std::make_shared<const std::string>(400, 's');
  for (int i = 0; i < 2; ++i) EXPECT_EQ(log.Append(command).spec, command.spec) << "shared";
  EXPECT_FALSE(log.overflown());
  log.Append(command);
  EXPECT_TRUE(log.overflown());
  log.Acknowledge(1);
  EXPECT_FALSE(log.overflown());
  log.Acknowledge(3);
  EXPECT_EQ(command.spec.use_count(), 1);
}

TEST(CommandTest, IsWrittenInPiecesAndReadAsOneMessage) {
  Command command;
  command.message.set_id(3);
  command.message.mutable_reserve()->mutable_shard()->set_job_id("job");
  command.message.mutable_reserve()->set_staging_bytes(7);
  for (const size_t heads : {1, 100, 10000}) {  // Lengths of one, two and three bytes.
    v1::AttentionSpec spec;
    spec.set_head_dim(64);
    for (size_t i = 0; i < heads; ++i) spec.mutable_modifiers()->add_sinks(0.5f);
    command.spec = std::make_shared<const std::string>(spec.SerializeAsString());
    control::v1::WorkerCommand read;
    ASSERT_TRUE(read.ParseFromString(command.Opening() + *command.spec));
    control::v1::WorkerCommand whole = command.message;
    *whole.mutable_reserve()->mutable_spec() = spec;
    EXPECT_EQ(read.SerializeAsString(), whole.SerializeAsString());
    EXPECT_EQ(Whole(command).SerializeAsString(), whole.SerializeAsString());
  }
  command.message.mutable_drop();
  command.spec = nullptr;
  EXPECT_EQ(command.Opening(), command.message.SerializeAsString());
}

TEST(LedgerTest, ReservesAllOrNothingAndNeverMoreThanTheLimit) {
  MemoryLedger ledger;
  ledger.AddWorker(1, {100, 10});
  ledger.AddWorker(2, {50, 10});
  EXPECT_FALSE(ledger.Reserve(7, {{1, {60, 0}}, {2, {60, 0}}}));
  EXPECT_EQ(ledger.used(1).staging, 0);
  EXPECT_TRUE(ledger.Reserve(7, {{1, {60, 0}}, {2, {50, 0}}}));
  EXPECT_TRUE(ledger.Reserve(7, {{1, {0, 10}}, {2, {0, 4}}}));
  EXPECT_FALSE(ledger.HasRoom(1, {0, 1}));
  EXPECT_FALSE(ledger.HasRoom(1, {INT64_MAX, 0}));
  ledger.ReleaseDevice(7, 1);
  EXPECT_TRUE(ledger.HasRoom(1, {40, 10}));
  EXPECT_EQ(ledger.used(1).staging, 60);
  ledger.Release(7, 1);
  ledger.Release(7, 1);  // A second release has no effect.
  EXPECT_EQ(ledger.used(1).staging, 0);
  EXPECT_TRUE(ledger.idle(1));
  EXPECT_FALSE(ledger.idle(2));
  ledger.EraseWorker(2);
  EXPECT_TRUE(ledger.idle(2));
  EXPECT_FALSE(ledger.HasRoom(2, {0, 0}));
}

TEST(GroupFamilyTest, IsLaminarAndHoldsAlignedPowersOfTwoAndTheWhole) {
  using Family = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(GroupFamily({}, 64), Family());
  EXPECT_EQ(GroupFamily({1}, 64), Family());
  EXPECT_EQ(GroupFamily({4, 2}, 64), Family({{4, 2}}));
  EXPECT_EQ(GroupFamily({1, 2, 3}, 64), Family({{1, 2, 3}, {1, 2}}));
  EXPECT_EQ(GroupFamily({1, 2, 3, 4}, 64), Family({{1, 2, 3, 4}, {1, 2}, {3, 4}}));
  for (int n = 2; n <= 64; ++n) {
    std::vector<int64_t> order(n);
    for (int i = 0; i < n; ++i) order[i] = i;
    const Family family = GroupFamily(order, 64);
    EXPECT_EQ(family[0], order);
    EXPECT_LE(family.size(), order.size());
    for (const auto& a : family) {
      for (const auto& b : family) {
        const bool disjoint = a.back() < b.front() || b.back() < a.front();
        const bool nested = (a.front() <= b.front() && b.back() <= a.back()) ||
                            (b.front() <= a.front() && a.back() <= b.back());
        EXPECT_TRUE(disjoint || nested) << n;
      }
    }
  }
}

TEST(GroupFamilyTest, HasNoGroupThatIsTooLargeForAnyJob) {
  using Family = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(GroupFamily({1, 2, 3}, 1), Family());
  EXPECT_EQ(GroupFamily({1, 2, 3}, 2), Family({{1, 2}}));
  EXPECT_EQ(GroupFamily({1, 2, 3, 4, 5}, 3), Family({{1, 2, 3}, {1, 2}, {4, 5}}));
  EXPECT_EQ(GroupFamily({1, 2, 3, 4, 5, 6, 7}, 4),
            Family({{1, 2, 3, 4}, {5, 6, 7}, {1, 2}, {3, 4}, {5, 6}}));
}

TEST(TimersTest, ComeInOrderOnceAndCanBeMoved) {
  Timers timers;
  const absl::Time t = absl::UnixEpoch();
  const TimerKey a{TimerKey::Kind::kJob, 1}, b{TimerKey::Kind::kJob, 2};
  EXPECT_EQ(timers.Next(), absl::InfiniteFuture());
  timers.Set(a, t + absl::Seconds(5));
  timers.Set(b, t + absl::Seconds(3));
  timers.Set(a, t + absl::Seconds(1));
  EXPECT_EQ(timers.Next(), t + absl::Seconds(1));
  EXPECT_FALSE(timers.PopDue(t).has_value());
  EXPECT_EQ(timers.PopDue(t + absl::Seconds(9))->number, 1);
  EXPECT_EQ(timers.PopDue(t + absl::Seconds(9))->number, 2);
  EXPECT_FALSE(timers.PopDue(t + absl::Seconds(9)).has_value());
  timers.Set(a, t);
  timers.Cancel(a);
  EXPECT_FALSE(timers.PopDue(t).has_value());
}

class FairQueueTest : public testing::Test {
 protected:
  void Push(FairQueue& queue, int64_t job, const std::string& principal, double cost,
            int32_t priority = 0, int submitted = 0) {
    queue.Push({job, principal, priority, cost, absl::FromUnixSeconds(submitted)});
  }
  // Takes `count` jobs one by one.
  std::vector<int64_t> Take(FairQueue& queue, int count) {
    std::vector<int64_t> taken;
    for (int i = 0; i < count; ++i) {
      bool one = false;
      queue.Serve([&](int64_t job) {
        if (one) return false;
        one = true;
        taken.push_back(job);
        return true;
      });
    }
    return taken;
  }
};

TEST_F(FairQueueTest, PrincipalsShareInRankSeconds) {
  FairQueue queue;
  for (int i = 0; i < 60; ++i) Push(queue, 100 + i, "a", 1);
  for (int i = 0; i < 60; ++i) Push(queue, 200 + i, "b", 2);
  int of_a = 0;
  for (int64_t job : Take(queue, 30)) of_a += job < 200;
  // b's jobs cost twice as much: half as many run.
  EXPECT_NEAR(of_a, 20, 1);
}

TEST_F(FairQueueTest, OneFloodDoesNotDelayAnother) {
  FairQueue queue;
  for (int i = 0; i < 50; ++i) Push(queue, i + 1, "flood", 1);
  EXPECT_EQ(Take(queue, 10).size(), 10u);
  Push(queue, 100, "late", 1);
  // A new principal starts level: it is served next, or after one more.
  const std::vector<int64_t> next = Take(queue, 2);
  EXPECT_TRUE(next[0] == 100 || next[1] == 100);
}

TEST_F(FairQueueTest, IdlenessIsNotSavedUpAndDebtIsNotForgiven) {
  FairQueue queue;
  Push(queue, 1, "a", 100);
  Push(queue, 2, "b", 1);
  Push(queue, 3, "b", 1);
  EXPECT_EQ(Take(queue, 2).size(), 2u);  // a's long job and one of b.
  Push(queue, 4, "a", 1);                // a's debt is 100.
  Push(queue, 5, "b", 1);
  EXPECT_EQ(Take(queue, 2), (std::vector<int64_t>{3, 5}));
}

TEST_F(FairQueueTest, PriorityGoesFirstAndWaitingCatchesUp) {
  FairQueue queue;
  Push(queue, 1, "a", 1, 0, 0);
  Push(queue, 2, "a", 1, 5, 0);
  Push(queue, 3, "a", 1, 5, 1);
  Push(queue, 4, "a", 1, 5, 51);  // Higher priority, but 51 s younger than job 1: 5 steps are 50 s.
  EXPECT_EQ(Take(queue, 4), (std::vector<int64_t>{2, 3, 1, 4}));
}

TEST_F(FairQueueTest, OffersEachJobOnceAndSkipsThoseThatDoNotFit) {
  FairQueue queue;
  for (int i = 1; i <= 5; ++i) Push(queue, i, "a", 1, 0, i);
  std::vector<int64_t> offered;
  queue.Serve([&](int64_t job) {
    offered.push_back(job);
    return job % 2 == 0;
  });
  EXPECT_EQ(offered, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(queue.size(), 3u);
  queue.Remove(3);
  queue.Remove(3);
  EXPECT_FALSE(queue.Contains(3));
}

TEST_F(FairQueueTest, WorkAheadIsOfTheSamePrincipalAndKindAndNotOfWhoComesLater) {
  FairQueue queue;
  Push(queue, 1, "a", 1, 0, 0);
  Push(queue, 2, "a", 2, 0, 20);
  Push(queue, 3, "b", 4, 0, 0);
  FairQueue::Entry entry{4, "a", 0, 8, absl::FromUnixSeconds(0)};
  entry.ranks = 2;
  queue.Push(entry);
  entry = {5, "a", 0, 16, absl::FromUnixSeconds(0)};
  entry.stands_aside = true;
  queue.Push(entry);
  const auto all = [](const FairQueue::Entry&) { return 1; };
  FairQueue::Entry newcomer{0, "a", 0, 1, absl::FromUnixSeconds(30)};
  EXPECT_EQ(queue.WorkAhead(newcomer, all), 3);
  EXPECT_EQ(queue.WorkAhead(newcomer, [](const auto& e) { return e.job == 1 ? 0.5 : 0; }), 0.5);
  newcomer.priority = 2;  // Counts as if it had come at 10.
  EXPECT_EQ(queue.WorkAhead(newcomer, all), 1);
  newcomer.ranks = 3;
  EXPECT_EQ(queue.WorkAhead(newcomer, all), 8);
  newcomer.principal = "c";
  EXPECT_EQ(queue.WorkAhead(newcomer, all), 0);
}

TEST(FairSharesTest, TheLeastServedIsNextAndIdlenessIsNotSavedUp) {
  FairShares shares;
  std::map<std::string, int> turns;
  const std::vector<std::string> names = {"long", "one", "two"};
  for (int i = 0; i < 400; ++i) {
    const auto next = std::min_element(names.begin(), names.end(), [&](auto& a, auto& b) {
      return shares.Served(a) < shares.Served(b);
    });
    ++turns[*next];
    shares.Charge(*next, *next == "long" ? 2 : 1);
  }
  EXPECT_NEAR(turns["long"], 80, 2);
  EXPECT_NEAR(turns["one"], 160, 2);
  // A new principal is level with the others, not 400 turns behind.
  EXPECT_GE(shares.Served("new"), shares.Served("one") - 1);
}

TEST(FairSharesTest, ForgetsThoseThatAreLevel) {
  FairShares shares;
  for (int i = 0; i < 100000; ++i) shares.Charge("p" + std::to_string(i), 1);
  EXPECT_LE(shares.size(), 1025u);
}

}  // namespace
}  // namespace annulus
