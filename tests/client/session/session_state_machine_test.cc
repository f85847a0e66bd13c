#include "client/session/session_state_machine.h"

#include <set>
#include <string>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/client/session/session_world.h"
#include "tests/seed.h"

namespace annulus {
namespace {

using Stream = SessionStateMachine::Stream;

constexpr absl::Duration kGrace = absl::Seconds(6);
const absl::Time kBegin = absl::FromUnixSeconds(1000);
const absl::Status kGone = absl::UnavailableError("gone");

SessionStateMachine::Options InMemory(int ranks = 1) {
  static const AttentionSpec one = SpecOfRanks(1), two = SpecOfRanks(2);
  SessionStateMachine::Options options;
  options.spec = ranks == 1 ? &one : &two;
  options.inputs_in_memory = options.outputs_in_memory = true;
  options.grace = options.outputs_grace = kGrace;
  return options;
}

// A machine with its first attempt's streams open.
SessionStateMachine Placed(const SessionStateMachine::Options& options, int ranks = 1) {
  SessionStateMachine machine(options, kBegin);
  EXPECT_TRUE(machine.OnJobEvent(PlacedEvent(PlanOfRanks(ranks, 1)), kBegin).start.has_value());
  return machine;
}

TEST(SessionStateMachineTest, AnswersWhenAllIsHere) {
  SessionStateMachine machine = Placed(InMemory());
  EXPECT_EQ(machine.progress().bytes_to_send, 30);
  EXPECT_EQ(machine.OnMoved(Stream::kUpload, 30).tell_progress, true);
  EXPECT_EQ(machine.progress().bytes_sent, 30);
  EXPECT_FALSE(machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin).end.has_value());
  machine.OnReport(1, 0, v1::ShardReport());
  const auto actions = machine.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin);
  ASSERT_TRUE(actions.end.has_value());
  EXPECT_TRUE(actions.end->status.ok());
  EXPECT_EQ(actions.end->stats.job_id(), "job");
  EXPECT_FALSE(actions.cancel_run_job) << "it would count as a cancelled job";
}

TEST(SessionStateMachineTest, WaitsForStatsThatNoWorkerHasTold) {
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  EXPECT_FALSE(
      machine.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin).end.has_value());
  const auto told = machine.OnJobEvent(StateEvent(v1::Job::STATE_DRAINING), kBegin);
  ASSERT_TRUE(told.end.has_value());
  EXPECT_TRUE(told.end->status.ok());
  EXPECT_TRUE(machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).cancel_run_job)
      << "nobody wants it computed again";
}

TEST(SessionStateMachineTest, TheCoordinatorHasItsTimeToSpeakOfALostWorker) {
  SessionStateMachine machine = Placed(InMemory());
  EXPECT_EQ(machine.wake(), absl::InfiniteFuture());
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  EXPECT_EQ(machine.wake(), kBegin + kGrace);
  machine.OnStreamDone(1, Stream::kDownload, kGone, kBegin + absl::Seconds(1));
  EXPECT_EQ(machine.wake(), kBegin + kGrace) << "once an attempt";
  EXPECT_FALSE(machine.OnTime(kBegin + absl::Seconds(5)).cancel_run_job);
  const auto over = machine.OnTime(kBegin + kGrace);
  EXPECT_TRUE(over.cancel_run_job);
  EXPECT_FALSE(over.end.has_value()) << "its call is open";
  const auto end = machine.OnRunJobDone(absl::CancelledError("call"), kBegin + kGrace).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.message(), "gone; the coordinator did not report how the job ended");
}

// For example, the coordinator is stopped, and the workers have released all jobs.
TEST(SessionStateMachineTest, WhatASilentCoordinatorDoesNotDecideIsSentAgain) {
  const auto last_word = [](const absl::Status& of_worker) {
    SessionStateMachine machine = Placed(InMemory());
    machine.OnStreamDone(1, Stream::kUpload, of_worker, kBegin);
    machine.OnStreamDone(1, Stream::kDownload, of_worker, kBegin);
    machine.OnTime(kBegin + kGrace);
    return DetailOf(
        machine.OnRunJobDone(absl::CancelledError("call"), kBegin + kGrace).end->status);
  };
  EXPECT_TRUE(last_word(MakeError(absl::StatusCode::kAborted, "", {"JOB_ENDED", {}, {}, {}}))
                  .retry_after.has_value());
  EXPECT_TRUE(
      last_word(MakeError(absl::StatusCode::kPermissionDenied, "", {"BAD_TICKET", {}, {}, {}}))
          .retry_after.has_value());
  const ErrorDetail told =
      last_word(MakeError(absl::StatusCode::kAborted, "", {"", {}, {}, absl::Seconds(3)}));
  EXPECT_EQ(told.retry_after, absl::Seconds(3));
  EXPECT_FALSE(last_word(absl::DeadlineExceededError("late")).retry_after.has_value());
  EXPECT_FALSE(last_word(kGone).retry_after.has_value()) << "it is sent again, later and later";
}

// A worker restarted at the same address does not accept the old one's tickets.
TEST(SessionStateMachineTest, TheCoordinatorHasItsTimeToSpeakOfANewWorker) {
  const auto denied = [](const char* reason) {
    return MakeError(absl::StatusCode::kPermissionDenied, "no", {reason, {}, {}, {}});
  };
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, denied("BAD_TICKET"), kBegin);
  machine.OnStreamDone(1, Stream::kDownload, denied("BAD_TICKET"), kBegin);
  EXPECT_FALSE(machine.failed());
  EXPECT_EQ(machine.wake(), kBegin + kGrace);
  machine.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_TRUE(machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).start.has_value());
  machine.OnStreamDone(2, Stream::kUpload, denied(""), kBegin);
  EXPECT_TRUE(machine.failed()) << "of something on the way";
}

TEST(SessionStateMachineTest, AJobThatIsPlacedAgainIsSentAgainWhenItsOldStreamsHaveEnded) {
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  machine.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_EQ(machine.wake(), absl::InfiniteFuture()) << "the coordinator knows";
  const auto placed = machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_TRUE(placed.cancel_streams);
  EXPECT_FALSE(placed.start.has_value());
  const auto quiet = machine.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin);
  ASSERT_TRUE(quiet.start.has_value());
  EXPECT_EQ(quiet.start->plan.attempt(), 2);
  EXPECT_EQ(machine.progress().bytes_sent, 0);
}

// Hanging streams of a replaced attempt do not end the current attempt.
TEST(SessionStateMachineTest, OldStreamsTakeTheirTime) {
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_EQ(machine.wake(), absl::InfiniteFuture());
  EXPECT_FALSE(machine.OnTime(kBegin + 2 * kGrace).cancel_run_job);
}

TEST(SessionStateMachineTest, AnAttemptThatIsLostBeforeItBeginsDoesNot) {
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  machine.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  const auto quiet = machine.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin);
  EXPECT_FALSE(quiet.start.has_value());
  EXPECT_TRUE(machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 3)), kBegin).start.has_value());
}

TEST(SessionStateMachineTest, WhatWasPushedCannotBeSentAgain) {
  SessionStateMachine::Options options = InMemory();
  options.inputs_in_memory = false;
  SessionStateMachine machine = Placed(options);
  const auto again = machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_TRUE(again.cancel_run_job && again.cancel_streams);
  EXPECT_FALSE(again.start.has_value());
  EXPECT_FALSE(again.tell_progress);
}

TEST(SessionStateMachineTest, APlanOfOtherRowsIsRefused) {
  SessionStateMachine machine(InMemory(2), kBegin);
  const auto actions = machine.OnJobEvent(PlacedEvent(PlanOfRanks(3, 1)), kBegin);
  EXPECT_FALSE(actions.start.has_value());
  EXPECT_TRUE(actions.cancel_run_job);
  EXPECT_TRUE(machine.failed());
}

TEST(SessionStateMachineTest, OutputsAreAwaitedUntilTheDeadlineWhenTheCallHasEnded) {
  SessionStateMachine::Options options = InMemory();
  options.deadline = kBegin + absl::Seconds(9);
  SessionStateMachine machine = Placed(options);
  machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  machine.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
  machine.OnRunJobDone(absl::OkStatus(), kBegin);
  EXPECT_EQ(machine.wake(), options.deadline);
  EXPECT_TRUE(machine.OnTime(options.deadline).cancel_streams);
  const auto end = machine.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kDeadlineExceeded);
}

SessionStateMachine::Options Releasing() {
  static const AttentionSpec releasing = [] {
    AttentionSpec spec = SpecOfRanks(1);
    spec.gradients.release_state = true;
    return spec;
  }();
  SessionStateMachine::Options options = InMemory();
  options.spec = &releasing;
  options.awaits_end_of_call = true;
  return options;
}

// The job releases a state and its call broke: no later call can get its rows.
TEST(SessionStateMachineTest, RowsThatCannotBeHadAgainAreAwaited) {
  SessionStateMachine machine = Placed(Releasing());
  EXPECT_FALSE(machine.OnJobEvent(StateEvent(v1::Job::STATE_FAILED, kGone), kBegin).cancel_run_job);
  EXPECT_EQ(machine.wake(), kBegin + kGrace);
  machine.OnRunJobDone(absl::UnavailableError("call"), kBegin);
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  const auto end = machine.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->status.ok()) << end->status;
  ASSERT_TRUE(end->unconfirmed.has_value());
  EXPECT_EQ(end->unconfirmed->message(), "gone") << "the first word is the job's own";
  EXPECT_FALSE(end->all_reported);
}

TEST(SessionStateMachineTest, RowsThatDoNotComeEndWithWhatTheJobEndedWith) {
  for (const bool in_time : {true, false}) {
    SessionStateMachine machine = Placed(Releasing());
    machine.OnRunJobDone(absl::UnavailableError("call"), kBegin);
    EXPECT_EQ(in_time || machine.OnTime(kBegin + kGrace).cancel_streams, true);
    machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
    const auto end = machine.OnStreamDone(1, Stream::kDownload, kGone, kBegin).end;
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status.message(), "call");
  }
}

TEST(SessionStateMachineTest, RowsThatCannotComeAreNotAwaited) {
  SessionStateMachine lacks = Placed(Releasing());
  lacks.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  EXPECT_TRUE(lacks.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
  SessionStateMachine lost = Placed(Releasing());
  lost.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_TRUE(lost.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
}

TEST(SessionStateMachineTest, WhatAnEarlierAttemptLackedIsForgotten) {
  SessionStateMachine machine = Placed(Releasing());
  machine.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  machine.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  EXPECT_TRUE(machine.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).start.has_value());
  EXPECT_EQ(machine.wake(), absl::InfiniteFuture());
  EXPECT_FALSE(machine.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
}

TEST(SessionStateMachineTest, OutputsThatWereNotFetchedSayWhy) {
  SessionStateMachine machine = Placed(InMemory());
  machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  machine.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  machine.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
  const auto end = machine.OnRunJobDone(absl::OkStatus(), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.message(), "gone");
}

// The worker ended the stream because the other call had its last row. The error may lack the
// reason.
TEST(SessionStateMachineTest, WhatEndedForAnotherCallIsToBeSentAgain) {
  for (const bool shared : {true, false}) {
    for (const absl::Status& cut : {absl::CancelledError("cut"), absl::AbortedError("over"),
                                    absl::NotFoundError("no such shard")}) {
      // True if the stream is cut before the job's end is reported.
      for (const bool early : {true, false}) {
        SessionStateMachine::Options options = InMemory();
        options.may_be_joined = options.awaits_end_of_call = shared;
        SessionStateMachine machine = Placed(options);
        machine.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
        if (early) machine.OnStreamDone(1, Stream::kDownload, cut, kBegin);
        machine.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
        auto end = machine.OnRunJobDone(absl::OkStatus(), kBegin).end;
        if (!early) end = machine.OnStreamDone(1, Stream::kDownload, cut, kBegin).end;
        ASSERT_TRUE(end.has_value());
        EXPECT_EQ(end->status.code(), shared ? absl::StatusCode::kAborted : cut.code());
        EXPECT_EQ(DetailOf(end->status).reason, shared ? "JOB_ENDED" : "");
        EXPECT_EQ(DetailOf(end->status).retry_after.has_value(), shared);
      }
    }
  }
}

TEST(SessionStateMachineTest, AnyHistoryEndsOnceAndAsItWas) {
  const uint32_t seed = TestSeed();
  std::set<std::string> seen;
  for (uint32_t history = 0; history < 20000; ++history) {
    SessionWorld world(seed + uint64_t{history} * 0x9e3779b97f4a7c15);
    world.Run();
    seen.insert(world.seen().begin(), world.seen().end());
    for (const std::string& wrong : world.wrongs()) ADD_FAILURE() << wrong;
    ASSERT_TRUE(world.wrongs().empty()) << "history " << history << ", " << SeedTrace(seed);
  }
  for (const char* what :
       {"answered", "early", "unconfirmed", "sent again", "alarm", "failed: CANCELLED",
        "failed: UNAVAILABLE", "failed: DATA_LOSS", "ended for another",
        "failed: DEADLINE_EXCEEDED", "failed: ABORTED", "failed: INTERNAL"}) {
    EXPECT_EQ(seen.count(what), 1u) << what << " never happened";
  }
}

}  // namespace
}  // namespace annulus
