#include <limits>

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;
using v1::Job;

class MembershipTest : public testing::Test {
 protected:
  CoordinatorHarness harness_;
};

TEST_F(MembershipTest, RegisterIsWelcomedAndMakesAFreshClusterReadyAtOnce) {
  EXPECT_FALSE(harness_.Info().ready());
  const auto& worker = harness_.AddWorker("w0");
  ASSERT_FALSE(worker.history.empty());
  EXPECT_TRUE(worker.history[0].has_welcome());
  EXPECT_EQ(worker.history[0].id(), 0);
  EXPECT_GT(worker.history[0].term(), 0);
  EXPECT_EQ(harness_.readiness, std::vector<bool>{true});
  EXPECT_TRUE(harness_.Info().ready());
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_READY);
  EXPECT_EQ(harness_.logged[0].text, "worker w0 registered: version 1.2.3, cpu/test, w0:8004");
}

TEST_F(MembershipTest, LeaseExpiresWhenTheClockSaysSo) {
  harness_.AddWorker("w0");
  harness_.Advance(absl::Seconds(60));  // Beats renew it.
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  harness_.silent.insert("w0");
  harness_.Advance(absl::Milliseconds(2900));
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  harness_.Advance(absl::Milliseconds(200));
  EXPECT_EQ(harness_.Info().workers_size(), 0);
  EXPECT_EQ(ReasonOf(*harness_.worker("w0").closed), "LEASE_EXPIRED");
  EXPECT_EQ(harness_.readiness, (std::vector<bool>{true, false}));
}

TEST(MembershipOptionsTest, MissedBeatsMakeAWorkerSuspectAndABeatBringsItBack) {
  CoordinatorOptions options;
  options.lease = absl::Seconds(10);
  CoordinatorHarness harness(options);
  harness.AddWorker("w0");
  harness.silent.insert("w0");
  harness.Advance(absl::Seconds(4));
  EXPECT_EQ(harness.Info().workers(0).state(), v1::WorkerInfo::STATE_SUSPECT);
  EXPECT_FALSE(harness.Info().ready());
  harness.silent.clear();
  harness.Advance(absl::Seconds(2));
  EXPECT_EQ(harness.Info().workers(0).state(), v1::WorkerInfo::STATE_READY);
}

TEST(MembershipOptionsTest, AWorkerThatIsBackIsSuspectAgainAsSoonAsAnyOther) {
  CoordinatorOptions options;
  options.lease = absl::Seconds(100);
  CoordinatorHarness harness(options);
  harness.AddWorker("w0");
  for (int i = 0; i < 2; ++i) {
    harness.silent.insert("w0");
    harness.Advance(absl::Seconds(4));
    EXPECT_EQ(harness.Info().workers(0).state(), v1::WorkerInfo::STATE_SUSPECT) << i;
    harness.silent.clear();
    harness.Advance(options.beat_interval);
    EXPECT_EQ(harness.Info().workers(0).state(), v1::WorkerInfo::STATE_READY) << i;
  }
}

TEST_F(MembershipTest, BrokenStreamIsSuspectAtOnceAndAReconnectBringsCommandsAgainInOrder) {
  harness_.Start(1);
  auto& worker = harness_.worker("w0");
  harness_.Disconnect(worker);
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_SUSPECT);
  harness_.Connect(worker, harness_.RegisterEvent("w0", worker.incarnation));
  const int64_t call = harness_.Run(harness_.Request(1));
  const int64_t seen = worker.received;
  // The Reserve arrived; the Drop is lost with the stream and is sent again.
  harness_.Disconnect(worker);
  harness_.Handle(event::CancelJob{harness_.NewCall(), "anonymous", harness_.JobOf(call)});
  EXPECT_EQ(worker.received, seen);
  harness_.Connect(worker, harness_.RegisterEvent("w0", worker.incarnation));
  EXPECT_EQ(worker.received, seen + 1);
  EXPECT_TRUE(worker.commands.back().has_drop());
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_READY);
  harness_.Execute();
  EXPECT_TRUE(harness_.tables().runs.all().empty());
}

TEST_F(MembershipTest, LostIncarnationDoesNotComeBack) {
  auto& worker = harness_.AddWorker("w0");
  harness_.silent.insert("w0");
  harness_.Advance(absl::Seconds(4));
  const int64_t term = worker.term;
  harness_.Connect(worker, harness_.RegisterEvent("w0", worker.incarnation));
  EXPECT_EQ(ReasonOf(*worker.closed), "LEASE_EXPIRED");
  EXPECT_EQ(worker.closed->code(), absl::StatusCode::kAborted);
  // A new incarnation is a new worker, whatever term it sends.
  worker.sent = worker.received = 0;
  WorkerEvent event = harness_.RegisterEvent("w0", "fresh");
  event.mutable_register_()->set_highest_term(term);
  harness_.Connect(worker, event);
  EXPECT_FALSE(worker.closed.has_value());
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  EXPECT_TRUE(harness_.Info().ready());
}

TEST_F(MembershipTest, NewIncarnationFencesTheOldOneWhoseMessagesChangeNothing) {
  harness_.Start(1);
  auto old = harness_.worker("w0");
  const int64_t call = harness_.Run(harness_.Request(1));
  const std::string job = harness_.JobOf(call);
  auto reserve = harness_.worker("w0").history.back();
  auto& fresh = harness_.AddWorker("w0");
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  EXPECT_EQ(harness_.Placed(call).attempt(), 2) << "the job runs again on the new one";
  // A late message on the old stream.
  WorkerEvent late;
  *late.mutable_shard_complete()->mutable_shard() = reserve.reserve().shard();
  late.set_term(old.term);
  late.set_id(1);
  harness_.Handle(event::WorkerReported{old.connection, late});
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  // A message of the new worker about the old attempt has no effect either.
  late.set_term(fresh.term);
  harness_.Say(fresh, late);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  // The old process returns with its old state.
  CoordinatorHarness::Worker ghost = old;
  WorkerEvent again = harness_.RegisterEvent("w0", old.incarnation);
  again.set_term(old.term);
  auto& ghost_worker = harness_.worker("ghost");
  ghost_worker = ghost;
  harness_.Connect(ghost_worker, again);
  EXPECT_EQ(ReasonOf(*ghost_worker.closed), "SLOT_TAKEN");
  EXPECT_EQ(harness_.Info().workers_size(), 1);
}

TEST_F(MembershipTest, EventsOfAnotherTermAndRepeatedOnesChangeNothing) {
  harness_.Start(1);
  auto& worker = harness_.worker("w0");
  const int64_t call = harness_.Run(harness_.Request(1));
  WorkerEvent complete;
  complete.mutable_shard_complete()->mutable_shard()->set_job_id(harness_.JobOf(call));
  complete.mutable_shard_complete()->mutable_shard()->set_attempt(1);
  complete.set_id(worker.sent + 1);
  complete.set_term(worker.term - 1);
  harness_.Handle(event::WorkerReported{worker.connection, complete});
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  complete.set_term(worker.term);
  complete.set_id(0);
  complete.set_id(worker.sent);  // A number from before (there is none yet; 0 is invalid).
  harness_.Say(worker, complete);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  const int64_t events = harness_.call(call).events.size();
  complete.set_term(worker.term);
  complete.set_id(worker.sent);
  harness_.Handle(event::WorkerReported{worker.connection, complete});
  EXPECT_EQ(harness_.call(call).events.size(), static_cast<size_t>(events));
}

TEST_F(MembershipTest, SkippedNumberEndsTheConnection) {
  harness_.Start(1);
  auto& worker = harness_.worker("w0");
  worker.sent += 1;  // One message is lost.
  harness_.Say(worker, {});
  EXPECT_EQ(ReasonOf(*worker.closed), "STREAM_SEQUENCE");
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_SUSPECT);
}

TEST_F(MembershipTest, OtherMessagesBeforeRegisterEndTheConnection) {
  auto& worker = harness_.worker("w0");
  worker.connection = 77;
  WorkerEvent beat;
  beat.mutable_beat();
  harness_.Handle(event::WorkerReported{77, beat});
  EXPECT_EQ(ReasonOf(*worker.closed), "STREAM_SEQUENCE");
}

TEST_F(MembershipTest, WorkersAreOfOneKind) {
  const auto connect = [&](const std::string& slot, control::v1::DeviceKind kind) {
    WorkerEvent event = harness_.RegisterEvent(slot, slot + "'s");
    event.mutable_register_()->set_device_kind(kind);
    auto& worker = harness_.worker(slot);
    worker = {};
    harness_.Connect(worker, event);
    return worker.closed;
  };
  EXPECT_FALSE(connect("gpu-0", control::v1::DEVICE_KIND_CUDA).has_value());
  const auto refused = connect("cpu-0", control::v1::DEVICE_KIND_CPU);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(ReasonOf(*refused), "INCOMPATIBLE_WORKER");
  EXPECT_EQ(refused->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      refused->message(),
      "it computes on a CPU, but worker gpu-0 on a GPU: all workers of a coordinator must have "
      "the same kind of device (--device)");
  // A worker without a kind counts as a CPU.
  EXPECT_TRUE(connect("old-0", control::v1::DEVICE_KIND_UNSPECIFIED).has_value());
  EXPECT_FALSE(connect("gpu-1", control::v1::DEVICE_KIND_CUDA).has_value());
  EXPECT_EQ(harness_.Info().workers_size(), 2);
}

TEST_F(MembershipTest, TheOperatorSaysWhichKindWhoeverComesFirst) {
  CoordinatorOptions options;
  options.worker_kind = WorkerKind::kCuda;
  CoordinatorHarness harness(options);
  const auto refused = harness.AddWorker("cpu-0").closed;
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(ReasonOf(*refused), "INCOMPATIBLE_WORKER");
  EXPECT_EQ(refused->message(),
            "it computes on a CPU, but the coordinator accepts only workers on a GPU (its "
            "--device-kind)");
  WorkerEvent event = harness.RegisterEvent("gpu-0", "gpu-0's");
  event.mutable_register_()->set_device_kind(control::v1::DEVICE_KIND_CUDA);
  harness.Connect(harness.worker("gpu-0"), event);
  EXPECT_FALSE(harness.worker("gpu-0").closed.has_value());
  EXPECT_EQ(harness.Info().workers_size(), 1);
  options.worker_kind = WorkerKind::kCpu;
  EXPECT_FALSE(CoordinatorHarness(options).AddWorker("cpu-0").closed.has_value());
}

// Workers of another kind are void.
TEST_F(MembershipTest, AHigherTermBeginsWhateverTheKindOfWhoKnowsIt) {
  harness_.AddWorker("cpu-0");
  WorkerEvent event = harness_.RegisterEvent("gpu-0", "gpu-0's");
  event.mutable_register_()->set_device_kind(control::v1::DEVICE_KIND_CUDA);
  event.mutable_register_()->set_highest_term(harness_.worker("cpu-0").term + 1);
  harness_.Connect(harness_.worker("gpu-0"), event);
  EXPECT_FALSE(harness_.worker("gpu-0").closed.has_value());
  EXPECT_TRUE(harness_.worker("cpu-0").closed.has_value());
  EXPECT_EQ(harness_.Info().workers_size(), 1);
}

// A place changes from one kind to another while it is the only one.
TEST_F(MembershipTest, TheOnlyWorkerMayComeBackAsAnother) {
  harness_.AddWorker("w0");
  WorkerEvent event = harness_.RegisterEvent("w0", "on a GPU");
  event.mutable_register_()->set_device_kind(control::v1::DEVICE_KIND_CUDA);
  auto& worker = harness_.worker("w0");
  worker = {};
  harness_.Connect(worker, event);
  EXPECT_FALSE(worker.closed.has_value());
  EXPECT_EQ(harness_.Info().workers_size(), 1);
}

TEST_F(MembershipTest, TooManyWorkersAreRefused) {
  CoordinatorOptions options;
  options.max_workers = 1;
  CoordinatorHarness harness(options);
  harness.AddWorker("w0");
  EXPECT_EQ(ReasonOf(*harness.AddWorker("w1").closed), "TOO_MANY_WORKERS");
}

TEST_F(MembershipTest, AfterARestartReadinessWaitsForOneLeaseAndLeftoversAreFreed) {
  WorkerEvent event = harness_.RegisterEvent("w0", "old");
  control::v1::Register& info = *event.mutable_register_();
  info.set_highest_term(5);
  info.add_resident_shards()->set_job_id("job-of-the-last-term");
  info.add_formed_groups()->set_term(5);
  auto& worker = harness_.worker("w0");
  worker.slot = "w0";
  worker.term = 5;
  harness_.Connect(worker, event);
  EXPECT_GT(worker.term, 5);
  ASSERT_EQ(worker.commands.size(), 2u);
  EXPECT_TRUE(worker.commands[0].has_drop());
  EXPECT_TRUE(worker.commands[1].has_abort_group());
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_SUSPECT) << "not ready";
  worker.sent = 0;
  harness_.Execute();
  EXPECT_EQ(harness_.Info().workers(0).state(), v1::WorkerInfo::STATE_READY);
  EXPECT_FALSE(harness_.Info().ready());
  const int64_t early = harness_.Run(harness_.Request(1));
  EXPECT_EQ(ReasonOf(*harness_.call(early).finished), "STARTING");
  harness_.Advance(absl::Seconds(3));
  EXPECT_TRUE(harness_.Info().ready());
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(1))), Job::STATE_UPLOADING);
}

TEST_F(MembershipTest, WorkerOfAHigherTermRaisesTheTermAndAllBeginAnew) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  const int64_t old_term = harness_.worker("w0").term;
  WorkerEvent event = harness_.RegisterEvent("w9", "far");
  event.mutable_register_()->set_highest_term(old_term + 1000);
  auto& worker = harness_.worker("w9");
  harness_.Connect(worker, event);
  EXPECT_EQ(worker.term, old_term + 1001);
  EXPECT_EQ(ReasonOf(*harness_.worker("w0").closed), "STALE_TERM");
  EXPECT_EQ(harness_.Info().workers_size(), 1);
  EXPECT_EQ(harness_.Get(harness_.JobOf(call)).state(), Job::STATE_QUEUED);
  // The same incarnation may register in the new term.
  auto& back = harness_.worker("w0");
  WorkerEvent again = harness_.RegisterEvent("w0", back.incarnation);
  again.mutable_register_()->set_highest_term(old_term);
  back.received = back.sent = 0;
  harness_.Connect(back, again);
  EXPECT_FALSE(back.closed.has_value());
  EXPECT_EQ(back.term, old_term + 1001);
}

TEST_F(MembershipTest, RefusedWorkerOfAHigherTermChangesNothing) {
  harness_.Start(2);
  const int64_t term = harness_.tables().term;
  const int64_t call = harness_.Run(harness_.Request(2));
  const int64_t day = absl::ToInt64Microseconds(absl::Hours(24));
  struct Case {
    int64_t highest_term;
    int32_t protocol_version;
    const char* reason;
  };
  const int32_t current = control::v1::PROTOCOL_VERSION_CURRENT;
  const Case cases[] = {
      {term + 1000, 99, "INCOMPATIBLE_WORKER"},
      {std::numeric_limits<int64_t>::max(), 99, "INCOMPATIBLE_WORKER"},
      {std::numeric_limits<int64_t>::max(), current, "INVALID_REGISTRATION"},
      {absl::ToUnixMicros(harness_.now()) + day + 1, current, "INVALID_REGISTRATION"},
  };
  for (const Case& c : cases) {
    WorkerEvent event = harness_.RegisterEvent("w9", "far");
    event.mutable_register_()->set_highest_term(c.highest_term);
    event.mutable_register_()->set_protocol_version(c.protocol_version);
    auto& worker = harness_.worker("w9");
    worker = {};
    harness_.Connect(worker, event);
    EXPECT_EQ(ReasonOf(*worker.closed), c.reason) << c.highest_term;
    EXPECT_EQ(harness_.tables().term, term);
    EXPECT_EQ(harness_.Info().workers_size(), 2);
  }
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
}

TEST_F(MembershipTest, LeavingWorkerFinishesGetsNothingNewAndIsToldToGo) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  auto& worker = harness_.worker("w1");
  WorkerEvent leaving;
  leaving.mutable_leaving();
  harness_.Say(worker, leaving);
  harness_.Advance(absl::Seconds(1));
  EXPECT_FALSE(harness_.Take(worker, WorkerCommand::kDrain).has_value());
  const int64_t next = harness_.Run(harness_.Request(2));
  EXPECT_EQ(ReasonOf(*harness_.call(next).finished), "INSUFFICIENT_WORKERS");
  harness_.Upload(harness_.JobOf(call));
  harness_.Execute();
  harness_.Fetch(harness_.JobOf(call));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  harness_.Execute();
  EXPECT_TRUE(harness_.worker("w1").history.back().has_drain());
  harness_.Disconnect(worker);
  EXPECT_EQ(harness_.Info().workers_size(), 1) << "gone at once, without a lease";
  EXPECT_EQ(harness_.logged.back().text, "worker w1 has left");
  EXPECT_EQ(harness_.logged.back().level, LogLevel::kInfo);
}

TEST(MembershipLimitTest, WorkerThatAcknowledgesNothingIsLost) {
  CoordinatorOptions options;
  options.max_unacknowledged = 3;
  options.lease = absl::Hours(1);
  CoordinatorHarness harness(options);
  auto& worker = harness.AddWorker("w0");
  for (int i = 0; i < 5 && !worker.closed.has_value(); ++i) harness.Run(harness.Request(1));
  EXPECT_TRUE(worker.closed.has_value());
}

}  // namespace
}  // namespace annulus
