#include "client/job_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/error.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "grpcpp/create_channel.h"
#include "proto/convert.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

struct Ends : JobObserver {
  void OnPlaced(const std::string&, const v1::Plan&) override {}
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnDone(const absl::Status& status, const v1::JobStats&) override { ends.push_back(status); }
  std::vector<absl::Status> ends;
};

TEST(JobSessionTest, OneThatIsCancelledBeforeItRunsAsksNobody) {
  Ends observer;
  JobOptions options;
  int calls = 0;
  options.run_job = [&](const v1::RunJobRequest&, absl::Time, RunJobCall::Handlers) {
    ++calls;
    return nullptr;
  };
  const std::shared_ptr<JobSession> session = JobSession::Make(std::move(options), &observer);
  session->Cancel(absl::CancelledError("too late"));
  EXPECT_TRUE(observer.ends.empty());
  session->Run();
  ASSERT_EQ(observer.ends.size(), 1u);
  EXPECT_EQ(observer.ends[0].message(), "too late");
  EXPECT_EQ(calls, 0);
}

TEST(JobSessionTest, AnEndMayComeBeforeRunReturns) {
  Ends observer;
  struct Over final : RunJobCall {
    void Cancel() override {}
  };
  JobOptions options;
  options.run_job = [](const v1::RunJobRequest&, absl::Time, RunJobCall::Handlers handlers) {
    handlers.on_done(absl::UnavailableError("not here"));
    return std::make_shared<Over>();
  };
  JobSession::Start(std::move(options), &observer);
  ASSERT_EQ(observer.ends.size(), 1u);
  EXPECT_EQ(observer.ends[0].message(), "not here");
}

// Of a job that others may join: their rows are no answer to a caller that sends none.
TEST(JobSessionTest, InputsThatEndTooEarlyAreMissingWhateverOthersHaveSent) {
  FakeService::Options service_options;
  service_options.complete_by_others = true;
  FakeService service(service_options);
  struct Closer final : Ends {
    void OnPlaced(const std::string&, const v1::Plan&) override { session->CloseInputs(); }
    void OnDone(const absl::Status& status, const v1::JobStats& stats) override {
      Ends::OnDone(status, stats);
      MutexLock lock(&mutex);
      ended = true;
      changed.SignalAll();
    }
    std::shared_ptr<JobSession> session;
    bool AwaitEnd(absl::Time deadline) {
      MutexLock lock(&mutex);
      while (!ended && SteadyNow() < deadline) changed.WaitFor(&mutex, deadline - SteadyNow());
      return ended;
    }
    Mutex mutex;
    CondVar changed;
    bool ended = false;
  } observer;
  const auto channel = grpc::CreateChannel(service.address(), grpc::InsecureChannelCredentials());
  const ClientJob job(60);
  JobOptions options;
  options.run_job = RemoteRunJob(channel, {});
  options.worker_channel = [channel](const std::string&) { return channel; };
  options.deadline = SteadyNow() + absl::Seconds(20);
  options.spec = job.spec;
  options.request.set_request_id("shared");
  *options.request.mutable_spec() = SpecToProto(job.spec);
  observer.session = JobSession::Make(std::move(options), &observer);
  observer.session->Run();
  ASSERT_TRUE(observer.AwaitEnd(SteadyNow() + absl::Seconds(30)));
  EXPECT_EQ(DetailOf(observer.ends[0]).reason, "MISSING_ROWS") << observer.ends[0];
}

}  // namespace
}  // namespace annulus
