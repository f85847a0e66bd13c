#include "client/job_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace annulus {
namespace {

struct Ends final : JobObserver {
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

}  // namespace
}  // namespace annulus
