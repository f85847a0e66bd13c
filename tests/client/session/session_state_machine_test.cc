#include "client/session/session_state_machine.h"

#include <set>
#include <string>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/client/session/session_world.h"
#include "tests/seed.h"

namespace annulus {
namespace {

using Stream = SessionBrain::Stream;

constexpr absl::Duration kGrace = absl::Seconds(6);
const absl::Time kBegin = absl::FromUnixSeconds(1000);
const absl::Status kGone = absl::UnavailableError("gone");

SessionBrain::Options InMemory(int ranks = 1) {
  static const AttentionSpec one = SpecOfRanks(1), two = SpecOfRanks(2);
  SessionBrain::Options options;
  options.spec = ranks == 1 ? &one : &two;
  options.inputs_in_memory = options.outputs_in_memory = true;
  options.grace = options.outputs_grace = kGrace;
  return options;
}

// One with its first attempt's streams open.
SessionBrain Placed(const SessionBrain::Options& options, int ranks = 1) {
  SessionBrain brain(options, kBegin);
  EXPECT_TRUE(brain.OnJobEvent(PlacedEvent(PlanOfRanks(ranks, 1)), kBegin).start.has_value());
  return brain;
}

TEST(SessionBrainTest, AnswersWhenAllIsHere) {
  SessionBrain brain = Placed(InMemory());
  EXPECT_EQ(brain.progress().bytes_to_send, 30);
  EXPECT_EQ(brain.OnMoved(Stream::kUpload, 30).tell_progress, true);
  EXPECT_EQ(brain.progress().bytes_sent, 30);
  EXPECT_FALSE(brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin).end.has_value());
  brain.OnReport(1, 0, v1::ShardReport());
  const auto actions = brain.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin);
  ASSERT_TRUE(actions.end.has_value());
  EXPECT_TRUE(actions.end->status.ok());
  EXPECT_EQ(actions.end->stats.job_id(), "job");
  EXPECT_FALSE(actions.cancel_run_job) << "it would count as a cancelled job";
}

TEST(SessionBrainTest, WaitsForStatsThatNoWorkerHasTold) {
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  EXPECT_FALSE(brain.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin).end.has_value());
  const auto told = brain.OnJobEvent(StateEvent(v1::Job::STATE_DRAINING), kBegin);
  ASSERT_TRUE(told.end.has_value());
  EXPECT_TRUE(told.end->status.ok());
  EXPECT_TRUE(brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).cancel_run_job)
      << "nobody wants it computed again";
}

TEST(SessionBrainTest, TheCoordinatorHasItsTimeToSpeakOfALostWorker) {
  SessionBrain brain = Placed(InMemory());
  EXPECT_EQ(brain.wake(), absl::InfiniteFuture());
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  EXPECT_EQ(brain.wake(), kBegin + kGrace);
  brain.OnStreamDone(1, Stream::kDownload, kGone, kBegin + absl::Seconds(1));
  EXPECT_EQ(brain.wake(), kBegin + kGrace) << "once an attempt";
  EXPECT_FALSE(brain.OnTime(kBegin + absl::Seconds(5)).cancel_run_job);
  const auto over = brain.OnTime(kBegin + kGrace);
  EXPECT_TRUE(over.cancel_run_job);
  EXPECT_FALSE(over.end.has_value()) << "its call is open";
  const auto end = brain.OnRunJobDone(absl::CancelledError("call"), kBegin + kGrace).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.message(), "gone; the coordinator has not said what becomes of the job");
}

// It stands still, say, and the workers have let go of all jobs.
TEST(SessionBrainTest, WhatASilentCoordinatorDoesNotDecideIsSentAgain) {
  const auto last_word = [](const absl::Status& of_worker) {
    SessionBrain brain = Placed(InMemory());
    brain.OnStreamDone(1, Stream::kUpload, of_worker, kBegin);
    brain.OnStreamDone(1, Stream::kDownload, of_worker, kBegin);
    brain.OnTime(kBegin + kGrace);
    return DetailOf(brain.OnRunJobDone(absl::CancelledError("call"), kBegin + kGrace).end->status);
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

// A worker that was restarted at the same address does not know the old one's tickets.
TEST(SessionBrainTest, TheCoordinatorHasItsTimeToSpeakOfANewWorker) {
  const auto denied = [](const char* reason) {
    return MakeError(absl::StatusCode::kPermissionDenied, "no", {reason, {}, {}, {}});
  };
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, denied("BAD_TICKET"), kBegin);
  brain.OnStreamDone(1, Stream::kDownload, denied("BAD_TICKET"), kBegin);
  EXPECT_FALSE(brain.failed());
  EXPECT_EQ(brain.wake(), kBegin + kGrace);
  brain.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_TRUE(brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).start.has_value());
  brain.OnStreamDone(2, Stream::kUpload, denied(""), kBegin);
  EXPECT_TRUE(brain.failed()) << "of something on the way";
}

TEST(SessionBrainTest, AJobThatIsPlacedAgainIsSentAgainWhenItsOldStreamsHaveEnded) {
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  brain.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_EQ(brain.wake(), absl::InfiniteFuture()) << "the coordinator knows";
  const auto placed = brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_TRUE(placed.cancel_streams);
  EXPECT_FALSE(placed.start.has_value());
  const auto quiet = brain.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin);
  ASSERT_TRUE(quiet.start.has_value());
  EXPECT_EQ(quiet.start->plan.attempt(), 2);
  EXPECT_EQ(brain.progress().bytes_sent, 0);
}

// What hangs of an attempt that another has taken the place of is no reason to give up that one.
TEST(SessionBrainTest, OldStreamsTakeTheirTime) {
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_EQ(brain.wake(), absl::InfiniteFuture());
  EXPECT_FALSE(brain.OnTime(kBegin + 2 * kGrace).cancel_run_job);
}

TEST(SessionBrainTest, AnAttemptThatIsLostBeforeItBeginsDoesNot) {
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  brain.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  const auto quiet = brain.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin);
  EXPECT_FALSE(quiet.start.has_value());
  EXPECT_TRUE(brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 3)), kBegin).start.has_value());
}

TEST(SessionBrainTest, WhatWasPushedCannotBeSentAgain) {
  SessionBrain::Options options = InMemory();
  options.inputs_in_memory = false;
  SessionBrain brain = Placed(options);
  const auto again = brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin);
  EXPECT_TRUE(again.cancel_run_job && again.cancel_streams);
  EXPECT_FALSE(again.start.has_value());
  EXPECT_FALSE(again.tell_progress);
}

TEST(SessionBrainTest, APlanOfOtherRowsIsRefused) {
  SessionBrain brain(InMemory(2), kBegin);
  const auto actions = brain.OnJobEvent(PlacedEvent(PlanOfRanks(3, 1)), kBegin);
  EXPECT_FALSE(actions.start.has_value());
  EXPECT_TRUE(actions.cancel_run_job);
  EXPECT_TRUE(brain.failed());
}

TEST(SessionBrainTest, OutputsAreAwaitedUntilTheDeadlineWhenTheCallHasEnded) {
  SessionBrain::Options options = InMemory();
  options.deadline = kBegin + absl::Seconds(9);
  SessionBrain brain = Placed(options);
  brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  brain.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
  brain.OnRunJobDone(absl::OkStatus(), kBegin);
  EXPECT_EQ(brain.wake(), options.deadline);
  EXPECT_TRUE(brain.OnTime(options.deadline).cancel_streams);
  const auto end = brain.OnStreamDone(1, Stream::kDownload, absl::CancelledError(""), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), absl::StatusCode::kDeadlineExceeded);
}

SessionBrain::Options Releasing() {
  static const AttentionSpec releasing = [] {
    AttentionSpec spec = SpecOfRanks(1);
    spec.gradients.release_state = true;
    return spec;
  }();
  SessionBrain::Options options = InMemory();
  options.spec = &releasing;
  options.awaits_end_of_call = true;
  return options;
}

// A job that was to release a state and whose call broke: nobody can ask again.
TEST(SessionBrainTest, RowsThatCannotBeHadAgainAreAwaited) {
  SessionBrain brain = Placed(Releasing());
  EXPECT_FALSE(brain.OnJobEvent(StateEvent(v1::Job::STATE_FAILED, kGone), kBegin).cancel_run_job);
  EXPECT_EQ(brain.wake(), kBegin + kGrace);
  brain.OnRunJobDone(absl::UnavailableError("call"), kBegin);
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  const auto end = brain.OnStreamDone(1, Stream::kDownload, absl::OkStatus(), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->status.ok()) << end->status;
  ASSERT_TRUE(end->unconfirmed.has_value());
  EXPECT_EQ(end->unconfirmed->message(), "gone") << "the first word is the job's own";
  EXPECT_FALSE(end->all_reported);
}

TEST(SessionBrainTest, RowsThatDoNotComeEndWithWhatTheJobEndedWith) {
  for (const bool in_time : {true, false}) {
    SessionBrain brain = Placed(Releasing());
    brain.OnRunJobDone(absl::UnavailableError("call"), kBegin);
    EXPECT_EQ(in_time || brain.OnTime(kBegin + kGrace).cancel_streams, true);
    brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
    const auto end = brain.OnStreamDone(1, Stream::kDownload, kGone, kBegin).end;
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status.message(), "call");
  }
}

TEST(SessionBrainTest, RowsThatCannotComeAreNotAwaited) {
  SessionBrain lacks = Placed(Releasing());
  lacks.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  EXPECT_TRUE(lacks.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
  SessionBrain lost = Placed(Releasing());
  lost.OnJobEvent(StateEvent(v1::Job::STATE_QUEUED), kBegin);
  EXPECT_TRUE(lost.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
}

TEST(SessionBrainTest, WhatAnEarlierAttemptLackedIsForgotten) {
  SessionBrain brain = Placed(Releasing());
  brain.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  brain.OnStreamDone(1, Stream::kUpload, kGone, kBegin);
  EXPECT_TRUE(brain.OnJobEvent(PlacedEvent(PlanOfRanks(1, 2)), kBegin).start.has_value());
  EXPECT_EQ(brain.wake(), absl::InfiniteFuture());
  EXPECT_FALSE(brain.OnRunJobDone(absl::UnavailableError("call"), kBegin).cancel_streams);
}

TEST(SessionBrainTest, OutputsThatWereNotFetchedSayWhy) {
  SessionBrain brain = Placed(InMemory());
  brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
  brain.OnStreamDone(1, Stream::kDownload, kGone, kBegin);
  brain.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
  const auto end = brain.OnRunJobDone(absl::OkStatus(), kBegin).end;
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.message(), "gone");
}

// By the worker, when that one had its last row: the wire may not have said why.
TEST(SessionBrainTest, WhatEndedForAnotherCallIsToBeSentAgain) {
  for (const bool shared : {true, false}) {
    for (const absl::Status& cut : {absl::CancelledError("cut"), absl::AbortedError("over"),
                                    absl::NotFoundError("no such shard")}) {
      for (const bool early : {true, false}) {  // Whether it is cut before the job's end is told.
        SessionBrain::Options options = InMemory();
        options.may_be_joined = options.awaits_end_of_call = shared;
        SessionBrain brain = Placed(options);
        brain.OnStreamDone(1, Stream::kUpload, absl::OkStatus(), kBegin);
        if (early) brain.OnStreamDone(1, Stream::kDownload, cut, kBegin);
        brain.OnJobEvent(StateEvent(v1::Job::STATE_SUCCEEDED), kBegin);
        auto end = brain.OnRunJobDone(absl::OkStatus(), kBegin).end;
        if (!early) end = brain.OnStreamDone(1, Stream::kDownload, cut, kBegin).end;
        ASSERT_TRUE(end.has_value());
        EXPECT_EQ(end->status.code(), shared ? absl::StatusCode::kAborted : cut.code());
        EXPECT_EQ(DetailOf(end->status).reason, shared ? "JOB_ENDED" : "");
        EXPECT_EQ(DetailOf(end->status).retry_after.has_value(), shared);
      }
    }
  }
}

TEST(SessionBrainTest, AnyHistoryEndsOnceAndAsItWas) {
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
