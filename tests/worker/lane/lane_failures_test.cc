// Effects of failures: on the shard, its peers, or the group.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "tests/worker/lane/lane_fixture.h"

namespace annulus {
namespace {

TEST_F(LaneTest, AKernelsFailureCostsTheShardNotTheGroup) {
  auto failing = std::make_shared<std::atomic<bool>>(true);
  LaneHost::Options options;
  options.before_call = [failing] {
    return *failing ? absl::InternalError("a bad tile") : absl::OkStatus();
  };
  Make(2, std::move(options));
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("job", rank, 0, steps, true));
  const auto failed = hosts_[0]->log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().error().message(), "a bad tile");
  EXPECT_TRUE(hosts_[0]->log.Wait(Event::kSegmentDone).has_value());
  EXPECT_TRUE(hosts_[1]->log.Wait(Event::kOutputReady).has_value());
  EXPECT_EQ(hosts_[0]->log.Count(Event::kOutputReady), 0);
  *failing = false;
  Prepare("again");
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("again", rank, 0, steps, true));
  for (auto& host : hosts_) EXPECT_TRUE(host->log.Wait(Event::kOutputReady).has_value());
}

// Its peers' outputs depend on its messages, so none of them may be fetched.
TEST_F(LaneTest, WhereResultsTravelNoRankHasOutputsUnlessAllHave) {
  for (const Strategy strategy : {Strategy::kUlysses, Strategy::kRingPassQ}) {
    strategy_ = strategy;
    hosts_.clear();
    prepared_.clear();
    auto failing = std::make_shared<std::atomic<bool>>(true);
    LaneHost::Options options;
    options.before_call = [failing] {
      return *failing ? absl::InternalError("a bad tile") : absl::OkStatus();
    };
    Make(2, std::move(options));
    Form();
    const int steps = Prepare("job");
    for (int rank = 0; rank < 2; ++rank) {
      const int64_t bytes = prepared_[rank].arena_bytes();
      EXPECT_EQ(bytes % 128, 2) << "behind what is aligned, each rank's word";
      EXPECT_EQ(hosts_[rank]->device().used_bytes(), bytes);
    }
    for (int rank = 0; rank < 2; ++rank)
      hosts_[rank]->lane().Command(Segment("job", rank, 0, steps, true));
    for (auto& host : hosts_) EXPECT_TRUE(host->log.Wait(Event::kSegmentDone).has_value());
    *failing = false;
    Prepare("again");
    for (int rank = 0; rank < 2; ++rank)
      hosts_[rank]->lane().Command(Segment("again", rank, 0, steps, true));
    for (auto& host : hosts_) {
      const auto ready = host->log.Wait(Event::kOutputReady);
      ASSERT_TRUE(ready.has_value());
      EXPECT_EQ(ready->output_ready().shard().job_id(), "again");
    }
    EXPECT_EQ(hosts_[0]->log.Count(Event::kShardFailed), 1);
    EXPECT_EQ(hosts_[1]->log.Count(Event::kShardFailed), 0) << "the other one tells why";
  }
}

TEST_F(LaneTest, AFaultOfTheDeviceIsToldAfterAnotherFailure) {
  auto fault = std::make_shared<std::atomic<bool>>(false);
  LaneHost::Options options;
  options.before_call = [] { return absl::ResourceExhaustedError("no memory"); };
  options.synchronize = [fault] {
    return *fault ? MakeError(absl::StatusCode::kInternal, "a fault",
                              {std::string(kReasonDeviceFault), {}, {}, {}})
                  : absl::OkStatus();
  };
  Make(2, std::move(options));
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("job", rank, 0, 1, false));
  const auto failed = hosts_[0]->log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  ASSERT_TRUE(hosts_[0]->log.Wait(Event::kSegmentDone).has_value());
  *fault = true;
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("job", rank, 1, steps, true));
  const auto lost = hosts_[0]->log.Wait(Event::kShardFailed);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->shard_failed().error().reason(), kReasonDeviceFault);
}

// If ranks exchange verdicts, the device fault may occur in the middle of the job.
TEST_F(LaneTest, AFaultOfTheDeviceIsToldThoughTheGroupWasAborted) {
  strategy_ = Strategy::kUlysses;
  LaneHost::Options options;
  options.synchronize = [this, aborted = std::make_shared<std::atomic<bool>>(false)] {
    if (!aborted->exchange(true)) hosts_[0]->lane().Command(End(/*abort=*/true));
    return MakeError(absl::StatusCode::kInternal, "a fault",
                     {std::string(kReasonDeviceFault), {}, {}, {}});
  };
  Make(2, std::move(options));
  Form();
  const int steps = Prepare("job");
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("job", rank, 0, steps, true));
  const auto broken = hosts_[0]->log.Wait(Event::kGroupBroken);
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->group_broken().cause().reason(), kReasonDeviceFault);
}

// It would send other bytes than its client's.
TEST_F(LaneTest, ARankWithoutItsInputsBreaksTheGroup) {
  Make(2);
  Form();
  AttentionSpec other = LaneSpec(24);
  other.outputs.max_logit = true;
  ShardWork work = hosts_[0]->Work(LaneSpec(24), 0, 2);
  work.staged = hosts_[0]->Work(other, 0, 2).staged;
  hosts_[0]->lane().Prepare(work);
  hosts_[1]->lane().Prepare(hosts_[1]->Work(LaneSpec(24), 1, 2));
  for (auto& host : hosts_) ASSERT_TRUE(host->log.Wait(Event::kPrepared).has_value());
  for (int rank = 0; rank < 2; ++rank)
    hosts_[rank]->lane().Command(Segment("job", rank, 0, 2, true));
  EXPECT_TRUE(hosts_[0]->log.Wait(Event::kShardFailed).has_value());
  EXPECT_TRUE(hosts_[0]->log.Wait(Event::kGroupBroken).has_value());
  EXPECT_TRUE(hosts_[1]->log.Wait(Event::kGroupBroken).has_value());
}

}  // namespace
}  // namespace annulus
