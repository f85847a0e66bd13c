#include <functional>

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

using v1::Job;

class CallsTest : public testing::Test {
 protected:
  CallsTest() { harness_.Start(1); }
  void Finish(int64_t call) {
    const std::string job = harness_.JobOf(call);
    harness_.Upload(job);
    harness_.OutputsReady(job);
    harness_.Fetch(job);
    harness_.Execute();
  }
  v1::RunJobRequest Named(const std::string& id, int64_t rows = 16) {
    v1::RunJobRequest request = harness_.Request(1, rows);
    request.set_request_id(id);
    return request;
  }
  CoordinatorHarness harness_;
};

TEST_F(CallsTest, EventsAreNumberedAndTheLastIsTerminal) {
  const int64_t call = harness_.Run(harness_.Request(1));
  Finish(call);
  const auto& events = harness_.call(call).events;
  for (size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(events[i].sequence(), static_cast<int64_t>(i + 1));
  EXPECT_EQ(events.back().state_changed().state(), Job::STATE_SUCCEEDED);
  EXPECT_EQ(events.back().state_changed().stats().attempts(), 1);
  EXPECT_EQ(events.back().state_changed().stats().backend(), "cpu/test");
}

TEST_F(CallsTest, AQuietCallHearsOfItsPlacementAndItsEnd) {
  v1::RunJobRequest request = Named("r1");
  const int64_t loud = harness_.Run(request);
  request.set_quiet(true);
  const int64_t quiet = harness_.Run(request);  // The same job again.
  EXPECT_EQ(harness_.JobOf(loud), harness_.JobOf(quiet));
  Finish(loud);
  const auto& events = harness_.call(quiet).events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_FALSE(events[0].placed().shards(0).ticket().empty());
  EXPECT_EQ(events[1].state_changed().state(), Job::STATE_SUCCEEDED);
  EXPECT_TRUE(harness_.call(quiet).finished->ok());
  EXPECT_GT(harness_.call(loud).events.size(), 4u);
}

// The lost attempt's streams end then, but not the job.
TEST_F(CallsTest, AQuietCallHearsOfALostAttempt) {
  v1::RunJobRequest request = harness_.Request(1);
  request.set_quiet(true);
  const int64_t call = harness_.Run(request);
  harness_.silent.insert("w0");
  harness_.Disconnect(harness_.worker("w0"));
  harness_.Advance(harness_.tables().options.lease + absl::Seconds(1));
  const auto& events = harness_.call(call).events;
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].has_placed());
  EXPECT_EQ(events[1].state_changed().state(), Job::STATE_QUEUED);
  EXPECT_FALSE(harness_.call(call).finished.has_value());
}

TEST_F(CallsTest, SameRequestIdIsTheSameJob) {
  const int64_t first = harness_.Run(Named("r1"));
  const int64_t second = harness_.Run(Named("r1"));
  EXPECT_EQ(harness_.JobOf(first), harness_.JobOf(second));
  EXPECT_EQ(harness_.Placed(first).shards(0).ticket(), harness_.Placed(second).shards(0).ticket());
  EXPECT_EQ(harness_.tables().jobs.all().size(), 1u);
  // The job lives as long as one of its calls.
  harness_.Handle(event::CallGone{first});
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_UPLOADING);
  Finish(second);
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_SUCCEEDED);
}

TEST_F(CallsTest, ACallThatJoinsEndsAtItsOwnDeadlineAndTheJobDoesNot) {
  const int64_t first = harness_.Run(Named("r1"));
  const int64_t late = harness_.Run(Named("r1"), "anonymous", harness_.now() + absl::Seconds(5));
  const int64_t later = harness_.Run(Named("r1"), "anonymous", harness_.now() + absl::Seconds(7));
  harness_.Advance(absl::Seconds(4));
  EXPECT_FALSE(harness_.call(late).finished.has_value());
  harness_.Advance(absl::Seconds(2));
  ASSERT_TRUE(harness_.call(late).finished.has_value());
  EXPECT_EQ(harness_.call(late).finished->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(*harness_.call(late).finished), "EXPIRED_RUNNING");
  EXPECT_FALSE(harness_.call(later).finished.has_value());
  harness_.Advance(absl::Seconds(2));
  EXPECT_TRUE(harness_.call(later).finished.has_value());
  Finish(first);
  EXPECT_EQ(harness_.StateOf(first), Job::STATE_SUCCEEDED);
  EXPECT_NE(harness_.StateOf(late), Job::STATE_SUCCEEDED) << "it follows the job no more";
}

TEST_F(CallsTest, AJobWhoseLastCallIsLateEndsWithIt) {
  const int64_t first = harness_.Run(Named("r1"));
  const int64_t last = harness_.Run(Named("r1"), "anonymous", harness_.now() + absl::Seconds(5));
  harness_.Handle(event::CallGone{first});
  const std::string job = harness_.JobOf(last);
  harness_.Advance(absl::Seconds(6));
  EXPECT_EQ(harness_.call(last).finished->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness_.Get(job).state(), Job::STATE_CANCELLED);
}

TEST_F(CallsTest, AfterTheEndTheSameRequestIdRunsAfreshBecauseItsOutputsAreGone) {
  const int64_t first = harness_.Run(Named("r1"));
  Finish(first);
  EXPECT_EQ(harness_.StateOf(first), Job::STATE_SUCCEEDED);
  const int64_t second = harness_.Run(Named("r1"));
  EXPECT_NE(harness_.JobOf(first), harness_.JobOf(second));
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_UPLOADING);
  EXPECT_FALSE(harness_.Placed(second).shards(0).ticket().empty());
  // Once its job has ended, the id is free for other content.
  Finish(second);
  EXPECT_EQ(harness_.StateOf(harness_.Run(Named("r1", 17))), Job::STATE_UPLOADING);
}

TEST_F(CallsTest, DetachedJobIsJoinedWhileItsOutputsWait) {
  v1::RunJobRequest request = Named("r1");
  request.set_detached(true);
  const int64_t first = harness_.Run(request);
  const std::string job = harness_.JobOf(first);
  harness_.Upload(job);
  harness_.OutputsReady(job);
  harness_.Handle(event::CallGone{first});
  const int64_t second = harness_.Run(request);
  EXPECT_EQ(harness_.JobOf(second), job);
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_DRAINING);
  EXPECT_EQ(harness_.Placed(second).shards(0).ticket(), harness_.Placed(first).shards(0).ticket());
  harness_.Fetch(job);
  EXPECT_TRUE(harness_.call(second).finished->ok());
  harness_.Execute();
  EXPECT_NE(harness_.JobOf(harness_.Run(request)), job);
}

TEST_F(CallsTest, SameRequestIdOfOtherContentIsRefusedAndOfAnotherPrincipalIsAnotherJob) {
  const int64_t first = harness_.Run(Named("r1"));
  const int64_t reused = harness_.Run(Named("r1", 17));
  EXPECT_EQ(harness_.call(reused).finished->code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(*harness_.call(reused).finished), "REQUEST_ID_REUSED");
  const int64_t other = harness_.Run(Named("r1"), "bob");
  EXPECT_NE(harness_.JobOf(first), harness_.JobOf(other));
}

TEST_F(CallsTest, AfterAFailureTheSameRequestIdRunsAfresh) {
  const int64_t first = harness_.Run(Named("r1"));
  harness_.Handle(event::CallGone{first});
  const int64_t second = harness_.Run(Named("r1"));
  EXPECT_NE(harness_.JobOf(first), harness_.JobOf(second));
  EXPECT_EQ(harness_.StateOf(second), Job::STATE_UPLOADING);
}

TEST_F(CallsTest, UnknownAndForeignJobsAreNotFoundAlike) {
  const int64_t mine = harness_.Run(harness_.Request(1));
  for (const std::string& job : {std::string("job-nothing"), harness_.JobOf(mine)}) {
    const int64_t get = harness_.NewCall(), cancel = harness_.NewCall(), watch = harness_.NewCall();
    harness_.Handle(event::GetJob{get, "mallory", job});
    harness_.Handle(event::CancelJob{cancel, "mallory", job});
    harness_.Handle(event::WatchJob{watch, "mallory", job});
    for (const absl::Status& status :
         {harness_.call(get).answer->status(), harness_.call(cancel).answer->status(),
          *harness_.call(watch).finished}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(ReasonOf(status), "JOB_NOT_FOUND");
    }
  }
  EXPECT_EQ(harness_.StateOf(mine), Job::STATE_UPLOADING);
}

TEST_F(CallsTest, CancelIsIdempotentAndChangesNoEndedJob) {
  const int64_t call = harness_.Run(harness_.Request(1));
  Finish(call);
  for (int i = 0; i < 2; ++i) {
    const int64_t cancel = harness_.NewCall();
    harness_.Handle(event::CancelJob{cancel, "anonymous", harness_.JobOf(call)});
    EXPECT_EQ(std::get<Job>(**harness_.call(cancel).answer).state(), Job::STATE_SUCCEEDED);
  }
}

TEST_F(CallsTest, WatcherGoesWithoutHarmAndIsToldTheEnd) {
  const int64_t call = harness_.Run(harness_.Request(1));
  const int64_t watch = harness_.NewCall(), other = harness_.NewCall();
  harness_.Handle(event::WatchJob{watch, "anonymous", harness_.JobOf(call)});
  harness_.Handle(event::WatchJob{other, "anonymous", harness_.JobOf(call)});
  harness_.Handle(event::CallGone{watch});
  EXPECT_EQ(harness_.StateOf(call), Job::STATE_UPLOADING);
  Finish(call);
  EXPECT_EQ(harness_.StateOf(other), Job::STATE_SUCCEEDED);
  EXPECT_TRUE(harness_.call(other).finished->ok());
  EXPECT_FALSE(harness_.call(watch).finished.has_value());
}

TEST_F(CallsTest, CallsOfAJobAreLimited) {
  const int64_t call = harness_.Run(harness_.Request(1));
  int64_t watch = 0;
  for (size_t i = 0; i < harness_.tables().options.max_calls_per_job; ++i) {
    watch = harness_.NewCall();
    harness_.Handle(event::WatchJob{watch, "anonymous", harness_.JobOf(call)});
  }
  EXPECT_EQ(ReasonOf(*harness_.call(watch).finished), "TOO_MANY_CALLS");
}

TEST_F(CallsTest, ALateCallPastTheLimitIsNotEvenCompared) {
  const int64_t call = harness_.Run(Named("r1"));
  for (size_t i = 1; i < harness_.tables().options.max_calls_per_job; ++i) {
    harness_.Handle(event::WatchJob{harness_.NewCall(), "anonymous", harness_.JobOf(call)});
  }
  EXPECT_EQ(ReasonOf(*harness_.call(harness_.Run(Named("r1"))).finished), "TOO_MANY_CALLS");
  EXPECT_EQ(ReasonOf(*harness_.call(harness_.Run(Named("r1", 17))).finished), "TOO_MANY_CALLS");
}

TEST(SameJobTest, IsAQuestionOfContentAndNotOfTheCall) {
  const auto make = [](const std::function<void(v1::RunJobRequest*)>& change) {
    v1::RunJobRequest request = CoordinatorHarness::Request(1);
    request.set_request_id("r");
    change(&request);
    return *MakeSubmission(request, CoordinatorOptions());
  };
  const auto one = make([](auto*) {});
  EXPECT_TRUE(SameJob(*one, *make([](auto* r) {
    r->mutable_timeout()->set_seconds(7);
    r->set_single_attempt(true);
    r->set_request_id("x");
  })));
  EXPECT_FALSE(SameJob(*one, *make([](auto* r) { r->set_detached(true); })));
  EXPECT_FALSE(SameJob(*one, *make([](auto* r) { r->mutable_spec()->set_scale(2); })));
  EXPECT_FALSE(SameJob(*one, *make([](auto* r) { r->mutable_execution()->set_priority(1); })));
  EXPECT_FALSE(SameJob(*one, *make([](auto* r) { r->mutable_spec()->add_sequences(); })));
  const auto nameless = make([](auto* r) { r->clear_request_id(); });
  EXPECT_FALSE(SameJob(*nameless, *nameless));
}

TEST_F(CallsTest, ListIsPagedNewestFirstAndOnlyOnesOwn) {
  std::vector<std::string> mine;
  for (int i = 0; i < 5; ++i) {
    mine.push_back(harness_.JobOf(harness_.Run(harness_.Request(1))));
    harness_.Run(harness_.Request(1), "bob");
  }
  std::vector<std::string> listed;
  event::ListJobs list{0, "anonymous", {}};
  list.request.set_page_size(2);
  do {
    list.call = harness_.NewCall();
    harness_.Handle(list);
    const auto& page = std::get<v1::ListJobsResponse>(**harness_.call(list.call).answer);
    EXPECT_LE(page.jobs_size(), 2);
    for (const Job& job : page.jobs()) listed.insert(listed.begin(), job.job_id());
    list.request.set_page_token(page.next_page_token());
  } while (!list.request.page_token().empty());
  EXPECT_EQ(listed, mine);
  for (const char* token : {"x", "-3"}) {
    list.call = harness_.NewCall();
    list.request.set_page_token(token);
    harness_.Handle(list);
    EXPECT_EQ(ReasonOf(harness_.call(list.call).answer->status()), "INVALID_REQUEST");
  }
}

TEST_F(CallsTest, APageOfJobsHasItsLimitOfBytesAndAtLeastOne) {
  for (const size_t jobs_in_page : {0, 1, 2}) {
    std::vector<std::string> listed;
    CoordinatorOptions options;
    CoordinatorHarness plain(options);
    plain.Start(1);
    const Job one = plain.Get(plain.JobOf(plain.Run(plain.Request(1))));
    // Without its spec the job is smaller.
    options.max_page_bytes = jobs_in_page * one.ByteSizeLong();
    CoordinatorHarness harness(options);
    harness.Start(1);
    for (int i = 0; i < 5; ++i) harness.Run(harness.Request(1));
    event::ListJobs list{0, "anonymous", {}};
    do {
      list.call = harness.NewCall();
      harness.Handle(list);
      const auto& page = std::get<v1::ListJobsResponse>(**harness.call(list.call).answer);
      EXPECT_GE(page.jobs_size(), 1);
      if (jobs_in_page > 0) {
        EXPECT_LE(page.ByteSizeLong(), options.max_page_bytes);
      } else {
        EXPECT_EQ(page.jobs_size(), 1);
      }
      for (const Job& job : page.jobs()) listed.push_back(job.job_id());
      list.request.set_page_token(page.next_page_token());
      ASSERT_LE(listed.size(), 5u);
    } while (!list.request.page_token().empty());
    EXPECT_EQ(listed.size(), 5u);
  }
}

TEST_F(CallsTest, EndedJobsAreForgottenAfterAWhileAndBeyondTheLimit) {
  const int64_t call = harness_.Run(harness_.Request(1));
  Finish(call);
  const std::string job = harness_.JobOf(call);
  harness_.Advance(absl::Minutes(4));
  EXPECT_EQ(harness_.Get(job).state(), Job::STATE_SUCCEEDED);
  harness_.Advance(absl::Minutes(2));
  EXPECT_EQ(harness_.Get(job).job_id(), "");
  CoordinatorOptions options;
  options.max_retained_jobs = 3;
  CoordinatorHarness small(options);
  small.Start(1);
  for (int i = 0; i < 10; ++i) small.Handle(event::CallGone{small.Run(small.Request(1))});
  EXPECT_EQ(small.tables().jobs.all().size(), 3u);
}

TEST(JoiningTest, RequestsOfCallsThatJoinAJobCount) {
  v1::RunJobRequest request = CoordinatorHarness::Request(1, 0);
  for (int i = 0; i < 50; ++i) request.mutable_spec()->add_sequences();
  request.set_request_id("r");
  CoordinatorOptions options;
  options.max_request_bytes = (*MakeSubmission(request, options))->bytes * 5 / 2;
  CoordinatorHarness harness(options);
  harness.Start(1);
  const int64_t first = harness.Run(request), second = harness.Run(request);
  EXPECT_EQ(harness.JobOf(second), harness.JobOf(first));
  EXPECT_EQ(ReasonOf(*harness.call(harness.Run(request)).finished), "QUEUE_FULL");
  harness.Handle(event::CallGone{second});
  const int64_t third = harness.Run(request);
  EXPECT_EQ(harness.JobOf(third), harness.JobOf(first));
  harness.Handle(event::CancelJob{harness.NewCall(), "anonymous", harness.JobOf(first)});
  EXPECT_TRUE(harness.call(third).finished.has_value());
  EXPECT_EQ(harness.tables().jobs.request_bytes(), 0);
}

// Half a character would not parse at the caller.
TEST_F(CallsTest, AnIdThatIsNoJobIsToldInWholeCharacters) {
  std::string id;
  for (int i = 0; i < 40; ++i) id += "\u20ac";
  const int64_t call = harness_.NewCall();
  harness_.Handle(event::GetJob{call, "anonymous", id});
  const absl::Status status = harness_.call(call).answer->status();
  EXPECT_EQ(DetailOf(status).metadata["job_id"], id.substr(0, 63));
}

TEST_F(CallsTest, OfAnEndedJobItsSpecAndPlanAreForgotten) {
  v1::RunJobRequest request = Named("r1");
  request.mutable_execution()->set_priority(3);
  const int64_t call = harness_.Run(request);
  const std::string job = harness_.JobOf(call);
  EXPECT_TRUE(harness_.Get(job).has_spec());
  EXPECT_TRUE(harness_.Get(job).has_plan());
  EXPECT_GT(harness_.tables().jobs.request_bytes(), 0);
  Finish(call);
  const Job ended = harness_.Get(job);
  EXPECT_FALSE(ended.has_spec() || ended.has_plan());
  EXPECT_EQ(ended.request_id(), "r1");
  EXPECT_EQ(ended.execution().priority(), 3);
  EXPECT_EQ(ended.stats().attempts(), 1);
  EXPECT_EQ(harness_.tables().jobs.request_bytes(), 0);
  const JobRecord& record = harness_.tables().jobs.all().begin()->second;
  EXPECT_EQ(record.plan, nullptr);
  EXPECT_EQ(record.submission->spec.sequences.size(), 0u);
  // A later caller still gets the job's end.
  const int64_t watch = harness_.NewCall();
  harness_.Handle(event::WatchJob{watch, "anonymous", job});
  EXPECT_EQ(harness_.StateOf(watch), Job::STATE_SUCCEEDED);
}

TEST_F(CallsTest, ServerInfoSaysWhatIsThere) {
  const v1::ServerInfo& info = harness_.Info();
  EXPECT_TRUE(info.ready());
  EXPECT_GT(info.limits().max_rows(), 0);
  EXPECT_GT(info.capabilities_size(), 10);
  EXPECT_EQ(info.workers(0).slot(), "w0");
  EXPECT_EQ(info.workers(0).staging().limit_bytes(), 1 << 20);
  EXPECT_EQ(info.workers(0).data_endpoint(), "w0:8004");
  EXPECT_EQ(info.term(), harness_.tables().term);
}

}  // namespace
}  // namespace annulus
