// Jobs that release a state, and whose end is not reported although their answer is complete.
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/steady_time.h"
#include "client/client.h"
#include "client/session/job_session.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/rpc/shared_timer.h"
#include "proto/wire/convert.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using Act = FakeService::Act;

FakeService::Options Playing(std::vector<Act> acts, bool reports) {
  FakeService::Options options = Script(std::move(acts));
  options.reports = reports;
  return options;
}

AttendArguments Releasing(StateJob* job, DataPath path) {
  AttendArguments arguments = job->GradientsOfState(path);
  arguments.spec.gradients.release_state = true;
  return arguments;
}

void ExpectGradients(const StateJob& job) {
  for (size_t i = 0; i < job.dq.size(); ++i) {
    ASSERT_EQ(job.dq[i], static_cast<float>(i / 16)) << i;
  }
  for (size_t i = 0; i < job.dk.size(); ++i) {
    ASSERT_EQ(job.dk[i], static_cast<float>(i / 16)) << i;
    ASSERT_EQ(job.dv[i], static_cast<float>(i / 16)) << i;
  }
}

TEST(ReleaseUnconfirmedTest, AnAnswerThatIsHereOutlivesItsCall) {
  for (const bool reports : {true, false}) {
    for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
      FakeService service(Playing({Act::kWordLost, Act::kReleased}, reports));
      Client client(At(service));
      StateJob job;
      const auto result = client.Attend(Releasing(&job, path));
      ASSERT_TRUE(result.ok()) << result.status();
      ExpectGradients(job);
      EXPECT_EQ(result->attempts, 1);
      EXPECT_EQ(result->release_unconfirmed, "UNAVAILABLE: gone");
      EXPECT_EQ(result->stats.job_id(), "job-1");
      EXPECT_EQ(result->stats.attempts(), 1);
      // Either the workers have reported their times, or there are no reports.
      const bool told = reports && path == DataPath::kDirect;
      EXPECT_EQ(result->stats_partial, !told);
      const auto& sent = result->stats.bytes_sent_per_rank();
      EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), int64_t{0}), told ? 20 : 0);
      EXPECT_EQ(sent.size(), path == DataPath::kDirect ? 3 : 0);
    }
  }
}

TEST(ReleaseUnconfirmedTest, SoItDoesOnCallsOfItsOwn) {
  FakeService service(Script({Act::kWordLost, Act::kReleased}));
  Client client(At(service));
  StateJob job(30000);  // 640 kB a rank.
  const auto result = client.Attend(Releasing(&job, DataPath::kDirect));
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectGradients(job);
  EXPECT_EQ(result->release_unconfirmed, "UNAVAILABLE: gone");
  EXPECT_EQ(service.exchanges(), 0);
}

TEST(ReleaseUnconfirmedTest, AnAnswerIsHereWhenItsTimeIsOver) {
  FakeService service(Script({Act::kSaysSoLate}));
  Client client(At(service));
  StateJob job;
  AttendArguments arguments = Releasing(&job, DataPath::kDirect);
  arguments.timeout = absl::Seconds(3);
  const auto result = client.Attend(std::move(arguments));
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectGradients(job);
  EXPECT_NE(result->release_unconfirmed.find("DEADLINE_EXCEEDED"), std::string::npos)
      << result->release_unconfirmed;
  service.LetJobsEnd();
}

TEST(ReleaseUnconfirmedTest, AnEndThatIsToldIsConfirmed) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    FakeService service({});
    Client client(At(service));
    StateJob job;
    const auto result = client.Attend(Releasing(&job, path));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->release_unconfirmed, "");
    EXPECT_FALSE(result->stats_partial);
  }
}

TEST(ReleaseUnconfirmedTest, WhatCanBeSentAgainIs) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    // Without reports the answer waits for the coordinator, whose call breaks.
    FakeService service(Playing({Act::kWordLost, Act::kServe}, /*reports=*/false));
    Client client(At(service));
    StateJob job;
    const auto result = client.Attend(job.GradientsOfState(path));  // The state stays.
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->attempts, 2);
    EXPECT_EQ(result->release_unconfirmed, "");
  }
}

// The status that ended a session.
class Ended : public JobObserver, public AwaitedStatus {
 public:
  void OnPlaced(const std::string&, const v1::Plan&) override {}
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnDone(const absl::Status& status, const v1::JobStats&) override { Set(status); }
};

// Each shard uses separate calls.
JobOptions SessionOf(const FakeService& service, const AttendArguments& arguments) {
  const auto channel = [](const std::string& address) {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  };
  JobOptions options;
  options.run_job = RemoteRunJob(channel(service.address()), {});
  options.worker_channel = channel;
  options.deadline = SteadyNow() + absl::Seconds(60);
  *options.request.mutable_spec() = SpecToProto(arguments.spec);
  options.spec = arguments.spec;
  options.inputs.emplace();
  for (const auto& [id, bytes] : arguments.inputs) options.inputs->tensors[id] = bytes.data();
  options.outputs.emplace();
  for (const auto& [id, bytes] : arguments.outputs) options.outputs->tensors[id] = bytes.data();
  return options;
}

TEST(ReleaseUnconfirmedTest, OutputsThatDoNotComeAreNotAwaitedForLong) {
  FakeService service(Script({Act::kGroupLost}));  // Its workers send nothing.
  StateJob job;
  JobOptions options = SessionOf(service, Releasing(&job, DataPath::kDirect));
  options.outputs_grace = absl::Milliseconds(50);
  Ended ended;
  const std::shared_ptr<JobSession> session = JobSession::Start(std::move(options), &ended);
  const absl::Status status = ended.Wait();
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST") << status;
}

// Until it was lost too, the coordinator could have reported the lost worker. From then on outputs
// have their full time.
TEST(ReleaseUnconfirmedTest, AnUploadThatWasCutTakesNoTimeFromOutputs) {
  FakeService service(Script({Act::kUploadsCut}));
  StateJob job;
  JobOptions options = SessionOf(service, Releasing(&job, DataPath::kDirect));
  options.grace = absl::Seconds(6);
  options.outputs_grace = absl::Seconds(39);
  Ended ended;
  SharedTimer job_ends(options.grace / 10, [&] { service.LetJobsEnd(); });
  SharedTimer outputs_come(options.grace * 1.3, [&] { service.SendOutputs(); });
  const std::shared_ptr<JobSession> session = JobSession::Start(std::move(options), &ended);
  job_ends.Begin();
  outputs_come.Begin();
  const absl::Status status = ended.Wait();
  EXPECT_TRUE(status.ok()) << status;
  ExpectGradients(job);
}

// The coordinator may wait longer for a worker to return than a client waits for the coordinator's
// report of an error.
TEST(LostAttemptTest, ItsStreamsAreNotTheJobsEnd) {
  FakeService service(Script({Act::kPlaceAgainLate}));
  StateJob job;
  JobOptions options = SessionOf(service, job.GradientsOfState(DataPath::kDirect));
  options.grace = absl::Seconds(1);
  Ended ended;
  SharedTimer again(3 * options.grace, [&] { service.LetJobsEnd(); });
  const std::shared_ptr<JobSession> session = JobSession::Start(std::move(options), &ended);
  again.Begin();
  const absl::Status status = ended.Wait();
  EXPECT_TRUE(status.ok()) << status;
  ExpectGradients(job);
}

}  // namespace
}  // namespace annulus
