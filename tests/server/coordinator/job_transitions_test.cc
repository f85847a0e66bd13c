#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "proto/wire/ticket.h"
#include "tests/server/coordinator/coordinator_harness.h"
#include "tests/server/coordinator/job_case.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using v1::Job;

class JobLifeTest : public JobCase {};

TEST_F(JobLifeTest, SoloJobRunsWithoutPrepareAndRunSegment) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(0));
  const std::string job = harness_.JobOf(call);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  ASSERT_EQ(harness_.Placed(call).shards_size(), 1);
  EXPECT_EQ(harness_.Placed(call).shards(0).endpoint(), "w0:8004");
  EXPECT_FALSE(harness_.Placed(call).shards(0).ticket().empty());
  auto reserve = harness_.Take(harness_.worker("w0"), WorkerCommand::kReserve);
  ASSERT_TRUE(reserve.has_value());
  EXPECT_TRUE(reserve->reserve().solo());
  EXPECT_FALSE(reserve->reserve().has_download_time()) << "the worker's own";
  EXPECT_EQ(reserve->reserve().staging_bytes(), 16 * 4 * 4 * 4 + 16 * 4);
  EXPECT_EQ(harness_.Info().workers(0).device().used_bytes(), 1000);
  harness_.Upload(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  harness_.OutputsReady(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_DRAINING);
  EXPECT_EQ(harness_.Info().workers(0).device().used_bytes(), 0);
  harness_.Fetch(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  EXPECT_TRUE(harness_.call(call).finished->ok());
  EXPECT_TRUE(harness_.worker("w0").commands.empty()) << "the worker has freed it by itself";
  EXPECT_EQ(harness_.Info().workers(0).staging().used_bytes(), 0);
  ExpectIdle();
}

TEST_F(JobLifeTest, GroupJobIsPreparedRunInSegmentsAndDrained) {
  harness_.segments = 3;
  harness_.longest_step = absl::Minutes(5);
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  const std::string job = harness_.JobOf(call);
  harness_.hold = {WorkerCommand::kPrepare, WorkerCommand::kRunSegment};
  harness_.Execute();
  EXPECT_FALSE(harness_.Take(harness_.worker("w0"), WorkerCommand::kPrepare).has_value());
  harness_.Upload(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_READY);
  harness_.hold = {WorkerCommand::kRunSegment};
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  // Two segments are outstanding; the third is not issued yet.
  EXPECT_EQ(harness_.worker("w0").commands.size(), 2u);
  EXPECT_EQ(harness_.worker("w1").commands.size(), 2u);
  EXPECT_FALSE(harness_.worker("w0").commands[1].run_segment().last());
  EXPECT_EQ(harness_.worker("w1").commands[1].run_segment().longest_step().seconds(), 300);
  harness_.hold.clear();
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_DRAINING);
  harness_.Fetch(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  int32_t done = 0;
  for (const v1::JobEvent& event : harness_.call(call).events) {
    if (!event.has_progress()) continue;
    EXPECT_EQ(event.progress().segments_done(), ++done);
  }
  EXPECT_EQ(done, 3);
  EXPECT_EQ(CountTerminal(call), 1);
  ExpectIdle();
}

TEST_F(JobLifeTest, WorldSizeThatTheFamilyLacksRunsInTheSmallestGroupThatHoldsIt) {
  harness_.Start(4);
  const int64_t call = harness_.Run(harness_.Request(3));
  EXPECT_EQ(harness_.Placed(call).shards_size(), 3);
  const std::string job = harness_.JobOf(call);
  harness_.Upload(job);
  harness_.Execute();
  harness_.Fetch(job);
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  // The surplus rank has no shard and gets no commands.
  for (const WorkerCommand& command : harness_.worker("w3").history) {
    EXPECT_FALSE(command.has_reserve() || command.has_run_segment());
  }
  ExpectIdle();
}

// Reserve has the duration of an upload instead of a time, because the worker's clock may differ.
TEST_F(JobLifeTest, ReserveSaysHowMuchTimeTheUploadHas) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(1));
  const absl::Time deadline = TimeFromProto(harness_.Placed(call).upload_deadline());
  bool reserved = false;
  for (const WorkerCommand& command : harness_.worker("w0").history) {
    if (!command.has_reserve()) continue;
    reserved = true;
    EXPECT_EQ(DurationFromProto(command.reserve().upload_time()), deadline - harness_.now());
  }
  EXPECT_TRUE(reserved);
}

TEST_F(JobLifeTest, WhatOthersReadIsTheTimeOfDay) {
  harness_.Start(1);
  harness_.state().SetTimeOfDay(absl::Hours(5));  // The machine's clock is set.
  const int64_t call = harness_.Run(harness_.Request(1));
  const absl::Time day = harness_.now() + absl::Hours(5);
  EXPECT_GT(TimeFromProto(harness_.Placed(call).upload_deadline()), day);
  const WorkerRecord& worker = *harness_.tables().workers.BySlot("w0");
  const auto claims =
      VerifyTicket(worker.info.ticket_key(), harness_.Placed(call).shards(0).ticket(), day);
  EXPECT_TRUE(claims.ok()) << claims.status();
  EXPECT_TRUE(worker.ready());
  harness_.Upload(harness_.JobOf(call));
  harness_.OutputsReady(harness_.JobOf(call));
  harness_.Fetch(harness_.JobOf(call));
  const v1::Job job = harness_.Get(harness_.JobOf(call));
  EXPECT_EQ(TimeFromProto(job.create_time()), day);
  EXPECT_EQ(TimeFromProto(job.end_time()), day);
}

TEST_F(JobLifeTest, ShardsWithoutBytesNeedNoFetch) {
  harness_.Start(1);
  const int64_t call = harness_.Run(harness_.Request(1, /*rows=*/0));
  harness_.Upload(harness_.JobOf(call));  // The worker reports it by itself.
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_RUNNING);
  harness_.OutputsReady(harness_.JobOf(call));
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_SUCCEEDED);
  ExpectIdle();
}

// Like a cancellation: the segments that both ranks got run out, and their group stays.
TEST_F(JobLifeTest, CancelInEveryStateFreesEverything) {
  for (int stop = 0; stop < 6; ++stop) {
    SCOPED_TRACE(stop);
    CoordinatorHarness harness;
    harness.segments = 2;
    harness.Start(2);
    const int64_t call = harness.Run(harness.Request(2));
    const std::string job = harness.JobOf(call);
    harness.hold = {WorkerCommand::kPrepare, WorkerCommand::kRunSegment};
    if (stop >= 1) harness.Upload(job);
    if (stop >= 2) harness.hold = {WorkerCommand::kRunSegment};
    harness.Execute();
    if (stop >= 3) harness.hold.clear();
    harness.Execute();
    if (stop == 5) harness.Fetch(job);
    const auto before = harness.StateOf(call);
    harness.Handle(event::CallGone{call});
    harness.hold.clear();
    harness.Execute();
    EXPECT_EQ(harness.Get(job).state(), stop == 5 ? Job::STATE_SUCCEEDED : Job::STATE_CANCELLED)
        << Job::State_Name(before);
    EXPECT_TRUE(harness.tables().runs.all().empty());
    EXPECT_EQ(harness.Info().workers(0).staging().used_bytes(), 0);
    EXPECT_EQ(harness.Info().workers(1).device().used_bytes(), 0);
  }
}

TEST_F(JobLifeTest, DisagreeingSchedulesDoNotStart) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  harness_.hold = {WorkerCommand::kPrepare};
  harness_.Upload(harness_.JobOf(call));
  harness_.Execute();
  for (const char* slot : {"w0", "w1"}) {
    auto prepare = harness_.Take(harness_.worker(slot), WorkerCommand::kPrepare);
    control::v1::WorkerEvent event;
    *event.mutable_prepared()->mutable_shard() = prepare->prepare().shard();
    event.mutable_prepared()->set_steps(1);
    control::v1::PeerDigest* digest = event.mutable_prepared()->add_digests();
    digest->set_peer(slot[1] == '0' ? 1 : 0);
    digest->set_sends(slot[1] == '0' ? 11 : 22);
    digest->set_receives(slot[1] == '0' ? 22 : 12);  // w1 receives bytes that w0 does not send.
    harness_.Say(harness_.worker(slot), std::move(event));
  }
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "SCHEDULE_MISMATCH");
  harness_.hold.clear();
  ExpectIdle();
}

TEST_F(JobLifeTest, AbandonedOrFailedShardEndsTheJobWithTheWorkersError) {
  harness_.Start(1);
  for (bool abandoned : {true, false}) {
    const int64_t call = harness_.Run(harness_.Request(1));
    control::v1::WorkerEvent event;
    control::v1::ShardKey shard;
    shard.set_job_id(harness_.JobOf(call));
    shard.set_attempt(1);
    v1::Error error;
    error.set_code(static_cast<int>(absl::StatusCode::kDeadlineExceeded));
    error.set_reason("UPLOAD_STALLED");
    if (abandoned) {
      *event.mutable_shard_abandoned()->mutable_shard() = shard;
      *event.mutable_shard_abandoned()->mutable_error() = error;
    } else {
      *event.mutable_shard_failed()->mutable_shard() = shard;
      *event.mutable_shard_failed()->mutable_error() = error;
    }
    harness_.Say(harness_.worker("w0"), std::move(event));
    EXPECT_EQ(harness_.StateOf(call), Job::STATE_FAILED);
    EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "UPLOAD_STALLED");
    ExpectIdle();
  }
}

TEST_F(JobLifeTest, DeadlinesEndJobsWithTheReasonOfTheirState) {
  harness_.Start(1);
  const int64_t running =
      harness_.Run(harness_.Request(1), "anonymous", harness_.now() + absl::Seconds(9));
  harness_.Upload(harness_.JobOf(running));
  v1::RunJobRequest slow = harness_.Request(1);
  const int64_t uploading = harness_.Run(slow);
  harness_.Advance(absl::Seconds(10));
  harness_.Execute();
  EXPECT_EQ(ReasonOf(*harness_.call(running).finished), "EXPIRED_RUNNING");
  EXPECT_EQ(harness_.call(running).finished->code(), absl::StatusCode::kDeadlineExceeded);
  harness_.Advance(absl::Seconds(30));
  EXPECT_EQ(ReasonOf(*harness_.call(uploading).finished), "UPLOAD_STALLED");
  EXPECT_EQ(CountTerminal(running), 1);
  ExpectIdle();
}

TEST_F(JobLifeTest, WaitingJobExpiresInTheQueue) {
  harness_.staging_limit = 1500;  // Room for one job of 1088 bytes.
  harness_.Start(1);
  harness_.Run(harness_.Request(1));
  const int64_t waits =
      harness_.Run(harness_.Request(1), "anonymous", harness_.now() + absl::Seconds(5));
  EXPECT_EQ(harness_.StateOf(waits), Job::STATE_QUEUED);
  harness_.Advance(absl::Seconds(6));
  EXPECT_EQ(ReasonOf(*harness_.call(waits).finished), "EXPIRED_IN_QUEUE");
}

TEST_F(JobLifeTest, DetachedJobOutlivesItsCallAndItsResultExpires) {
  harness_.Start(1);
  v1::RunJobRequest request = harness_.Request(1);
  request.set_detached(true);
  request.mutable_result_ttl()->set_seconds(20);
  const int64_t call = harness_.Run(request);
  const std::string job = harness_.JobOf(call);
  const auto reserve = harness_.Take(harness_.worker("w0"), WorkerCommand::kReserve);
  EXPECT_GE(reserve->reserve().download_time().seconds(), 20) << "the worker waits as long";
  harness_.Handle(event::CallGone{call});
  harness_.Upload(job);
  harness_.OutputsReady(job);
  EXPECT_EQ(harness_.Get(job).state(), Job::STATE_DRAINING);
  // A new call gets the state, then the placement with its tickets and the ranks that are ready.
  const int64_t watch = harness_.NewCall();
  harness_.Handle(event::WatchJob{watch, "anonymous", job});
  ASSERT_EQ(harness_.call(watch).events.size(), 3u);
  EXPECT_TRUE(harness_.call(watch).events[0].has_state_changed());
  EXPECT_FALSE(harness_.call(watch).events[1].placed().shards(0).ticket().empty());
  EXPECT_TRUE(harness_.call(watch).events[2].has_rows_ready());
  EXPECT_TRUE(harness_.Get(job).plan().shards(0).ticket().empty());
  harness_.Advance(absl::Seconds(21));
  EXPECT_EQ(harness_.Get(job).error().reason(), "RESULT_EXPIRED");
  EXPECT_EQ(harness_.Get(job).error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_TRUE(harness_.call(watch).finished->ok());
  ExpectIdle();
}

TEST_F(JobLifeTest, AtMostTwoJobsAheadOfAGroupAndMoreImportantOnesGoFirst) {
  harness_.Start(2);
  std::vector<int64_t> calls;
  for (int i = 0; i < 4; ++i) {
    v1::RunJobRequest request = harness_.Request(2);
    request.mutable_execution()->set_priority(i == 3 ? 10 : 0);
    calls.push_back(harness_.Run(request));
  }
  EXPECT_EQ(harness_.StateOf(calls[0]), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(calls[1]), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(calls[2]), Job::STATE_QUEUED);
  harness_.Upload(harness_.JobOf(calls[0]));
  harness_.hold = {WorkerCommand::kRunSegment};
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(calls[0]), Job::STATE_RUNNING);
  EXPECT_EQ(harness_.StateOf(calls[3]), Job::STATE_UPLOADING);
  EXPECT_EQ(harness_.StateOf(calls[2]), Job::STATE_QUEUED);
}

TEST_F(JobLifeTest, RankThatTakesMoreDeviceMemoryThanWasClaimedEndsTheJob) {
  harness_.Start(2);
  const int64_t call = harness_.Run(harness_.Request(2));
  harness_.Upload(harness_.JobOf(call));
  for (const char* slot : {"w0", "w1"}) {
    const auto prepare = harness_.Take(harness_.worker(slot), WorkerCommand::kPrepare);
    control::v1::WorkerEvent event;
    *event.mutable_prepared()->mutable_shard() = prepare->prepare().shard();
    event.mutable_prepared()->set_steps(4);
    event.mutable_prepared()->set_arena_bytes(harness_.device_bytes + (slot[1] - '0'));
    harness_.Say(harness_.worker(slot), event);
  }
  EXPECT_EQ(ReasonOf(*harness_.call(call).finished), "SCHEDULE_MISMATCH");
  ExpectIdle();
}

TEST_F(JobLifeTest, ShortJobDoesNotWaitForTheEndOfALongOneOnItsGroup) {
  for (const char* principal : {"anonymous", "bob"}) {
    CoordinatorHarness harness;
    harness.Start(2);
    harness.hold = {WorkerCommand::kRunSegment};
    const auto start = [&](int32_t segments, const std::string& whose) {
      harness.steps = harness.segments = segments;
      harness.plan_seconds = 0.1 * segments;
      const int64_t call = harness.Run(harness.Request(2), whose);
      harness.Upload(harness.JobOf(call));
      harness.Execute();
      return call;
    };
    const int64_t longer = start(10000, "anonymous");
    EXPECT_EQ(harness.StateOf(longer), Job::STATE_RUNNING);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(harness.RunOneSegment());
    const int64_t shorter = start(10, principal);
    int rounds = 0;
    while (harness.StateOf(shorter) != Job::STATE_DRAINING && rounds < 100) {
      EXPECT_TRUE(harness.RunOneSegment());
      ++rounds;
    }
    EXPECT_LE(rounds, 2 * 10 + 2) << "turn by turn, behind what was issued before";
    EXPECT_EQ(harness.StateOf(longer), Job::STATE_RUNNING);
  }
}

}  // namespace
}  // namespace annulus
