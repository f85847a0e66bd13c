#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/error.h"
#include "client/client.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "proto/wire/status.h"

namespace annulus {
namespace {

// Releases a state as the service does: kept until the first call, released afterwards. The first
// answers are lost.
struct LossyJobs : v1::Jobs::Service {
  explicit LossyJobs(int lost) : lost(lost) {}
  grpc::Status ReleaseState(grpc::ServerContext*, const v1::ReleaseStateRequest* request,
                            v1::Job* job) override {
    ++calls;
    if (request->job_id() != "job-1") {
      return ToGrpcStatus(
          MakeError(absl::StatusCode::kNotFound, "no such job", {"JOB_NOT_FOUND", {}, {}, {}}));
    }
    released = true;
    if (calls <= lost) return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    job->set_job_id(request->job_id());
    job->mutable_kept_state()->set_status(v1::KeptState::STATUS_RELEASED);
    return grpc::Status::OK;
  }
  const int lost;
  int calls = 0;
  bool released = false;
};

struct Served {
  explicit Served(int lost) : jobs(lost) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs);
    server = builder.BuildAndStart();
    options.address = absl::StrCat("127.0.0.1:", port);
  }
  LossyJobs jobs;
  ClientOptions options;
  std::unique_ptr<grpc::Server> server;
};

TEST(ReleaseStateTest, IsAskedAgainWhereTheAnswerWasLost) {
  Served served(1);
  const absl::StatusOr<v1::Job> job = Client(served.options).ReleaseState("job-1");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->kept_state().status(), v1::KeptState::STATUS_RELEASED);
  EXPECT_EQ(served.jobs.calls, 2);
}

TEST(ReleaseStateTest, SaysSoWhereNoAnswerComes) {
  Served served(100);
  EXPECT_EQ(Client(served.options).ReleaseState("job-1").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(served.jobs.calls, 4);
  EXPECT_TRUE(served.jobs.released);
}

TEST(ReleaseStateTest, IsNotAskedAgainAboutAJobThatNobodyKnows) {
  Served served(0);
  EXPECT_EQ(DetailOf(Client(served.options).ReleaseState("job-2").status()).reason,
            "JOB_NOT_FOUND");
  EXPECT_EQ(served.jobs.calls, 1);
}

}  // namespace
}  // namespace annulus
