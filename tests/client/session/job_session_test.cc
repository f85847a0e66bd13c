#include "client/session/job_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "grpcpp/create_channel.h"
#include "proto/wire/convert.h"
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

// Ends with a function to wait for the end.
struct AwaitedEnd : Ends {
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override {
    Ends::OnDone(status, stats);
    MutexLock lock(&mutex);
    ended = true;
    changed.SignalAll();
  }
  bool AwaitEnd() {
    const absl::Time deadline = SteadyNow() + absl::Seconds(30);
    MutexLock lock(&mutex);
    while (!ended && SteadyNow() < deadline) changed.WaitFor(&mutex, deadline - SteadyNow());
    return ended;
  }
  std::shared_ptr<JobSession> session;
  Mutex mutex;
  CondVar changed;
  bool ended = false;
};

// A job at `service` whose inputs are pushed.
JobOptions Pushed(const FakeService& service, const ClientJob& job) {
  const auto channel = grpc::CreateChannel(service.address(), grpc::InsecureChannelCredentials());
  JobOptions options;
  options.run_job = RemoteRunJob(channel, {});
  options.worker_channel = [channel](const std::string&) { return channel; };
  options.deadline = SteadyNow() + absl::Seconds(20);
  options.spec = job.spec;
  *options.request.mutable_spec() = SpecToProto(job.spec);
  return options;
}

// Other calls may join the job: their rows are no answer to a caller that sends none.
TEST(JobSessionTest, InputsThatEndTooEarlyAreMissingWhateverOthersHaveSent) {
  FakeService::Options service_options;
  service_options.complete_by_others = true;
  FakeService service(service_options);
  struct Closer final : AwaitedEnd {
    void OnPlaced(const std::string&, const v1::Plan&) override { session->CloseInputs(); }
  } observer;
  JobOptions options = Pushed(service, ClientJob(60));
  options.request.set_request_id("shared");
  observer.session = JobSession::Make(std::move(options), &observer);
  observer.session->Run();
  ASSERT_TRUE(observer.AwaitEnd());
  EXPECT_EQ(DetailOf(observer.ends[0]).reason, "MISSING_ROWS") << observer.ends[0];
  EXPECT_NE(observer.ends[0].message().find("rows of q, k, v are missing"), std::string::npos)
      << observer.ends[0];
}

// Scattered chunks get new CRCs, which would hide earlier damage. With one rank a chunk keeps its
// CRC, which its worker checks.
TEST(JobSessionTest, ADamagedChunkIsFound) {
  struct Pusher final : AwaitedEnd {
    void OnPlaced(const std::string&, const v1::Plan&) override {
      for (const TensorInfo& tensor : TensorTable(job->spec)) {
        if (tensor.direction != Direction::kInput) continue;
        TensorChunk chunk;
        chunk.tensor = tensor.id;
        chunk.row_count = RowsOf(tensor, job->spec);
        chunk.data = Payload::Filled(chunk.row_count * tensor.row_bytes(), [](std::byte*) {});
        chunk.crc32c = chunk.data.Crc32c() ^ 1;
        session->Push(std::move(chunk), nullptr);
      }
    }
    const ClientJob* job = nullptr;
  };
  for (const int world : {1, 2}) {
    FakeService::Options service_options;
    service_options.world = world;
    FakeService service(service_options);
    const ClientJob job(60);
    Pusher observer;
    observer.job = &job;
    observer.session = JobSession::Make(Pushed(service, job), &observer);
    observer.session->Run();
    ASSERT_TRUE(observer.AwaitEnd());
    EXPECT_EQ(DetailOf(observer.ends[0]).reason, "CHECKSUM_MISMATCH") << observer.ends[0];
  }
}

}  // namespace
}  // namespace annulus
