// AttendMany calls of small jobs through the gateway. Later jobs reuse them.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/client.h"
#include "client/session/gateway_session.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_errors.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using Act = FakeService::Act;

// Runs a small job with at most `attempts`.
absl::StatusOr<AttendResult> Send(Client* client, ClientJob* job, int attempts = 1) {
  AttendArguments arguments = job->Arguments(DataPath::kGateway);
  arguments.max_attempts = attempts;
  return client->Attend(std::move(arguments));
}

void ExpectServed(Client* client) {
  ClientJob job(60);
  const auto result = Send(client, &job);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->path, DataPath::kGateway);
  job.ExpectServed();
}

TEST(AttendManyTest, SmallJobsShareACall) {
  FakeService service({});
  Client client(At(service));
  for (int i = 0; i < 5; ++i) ExpectServed(&client);
  EXPECT_EQ(service.attends(), 5);
  EXPECT_EQ(service.attend_manys(), 1);
  ClientJob large(30000);  // 1.9 MB of queries.
  ASSERT_TRUE(Send(&client, &large).ok());
  large.ExpectServed();
  ClientJob keys(1, 5000);  // 640 kB of inputs.
  ASSERT_TRUE(Send(&client, &keys).ok());
  keys.ExpectServed();
  EXPECT_EQ(service.attends(), 7);
  EXPECT_EQ(service.attend_manys(), 1);
  EXPECT_EQ(service.many_jobs(), 5);
}

// Small inputs may have large outputs.
TEST(AttendManyTest, AJobWithLargeOutputsHasACallOfItsOwn) {
  FakeService service(Script({Act::kQueueFull}));  // It serves only outputs shaped as queries.
  Client client(At(service));
  AttentionSpec spec = ClientJob(6000, 1).spec;
  spec.head_dim_v = 64;
  const std::vector<std::byte> q(6000 * 2 * 8 * 4), k(2 * 8 * 4), v(2 * 64 * 4);
  AttendArguments arguments;
  arguments.spec = spec;
  arguments.inputs = {{TensorId::kQ, q}, {TensorId::kK, k}, {TensorId::kV, v}};
  arguments.path = DataPath::kGateway;
  arguments.max_attempts = 1;
  EXPECT_EQ(DetailOf(client.Attend(std::move(arguments)).status()).reason, "QUEUE_FULL");
  EXPECT_EQ(service.attends(), 1);
  EXPECT_EQ(service.many_jobs(), 0);
}

// One call for each simultaneous job.
TEST(AttendManyTest, AJobDoesNotWaitForAnother) {
  FakeService service(Script({Act::kNeverPlace, Act::kServe}));
  Client client(At(service));
  ClientJob waits(60);
  AttendOutcome outcome;
  const auto call = client.AttendAsync(waits.Arguments(DataPath::kGateway), outcome.Function());
  while (service.attends() == 0) std::this_thread::yield();
  ExpectServed(&client);
  EXPECT_EQ(service.attend_manys(), 2);
  call->Cancel();
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(AttendManyTest, OneThatHasEndedIsReplacedOnce) {
  for (const grpc::Status& end :
       {grpc::Status::OK, Gone(), grpc::Status(grpc::StatusCode::CANCELLED, "cut"),
        grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "too long")}) {
    FakeService::Options options;
    options.ends_many = [end](int job) { return job == 2 ? std::optional(end) : std::nullopt; };
    FakeService service(options);
    Client client(At(service));
    for (int i = 0; i < 4; ++i) ExpectServed(&client);
    EXPECT_EQ(service.attends(), 4);
    EXPECT_EQ(service.attend_manys(), 4);
  }
}

TEST(AttendManyTest, ANewCallThatEndsIsTheGatewaysEnd) {
  FakeService::Options options;
  options.ends_many = [](int) { return Gone(); };
  FakeService service(options);
  Client client(At(service));
  ClientJob job(60);
  const auto result = Send(&client, &job);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
  EXPECT_EQ(service.attend_manys(), 1);
}

TEST(AttendManyTest, AGatewayThatDoesNotKnowItIsAskedOnce) {
  FakeService::Options options;
  options.only_attend = true;
  FakeService service(options);
  Client client(At(service));
  for (int i = 0; i < 3; ++i) ExpectServed(&client);
  EXPECT_EQ(service.attends(), 3);
  EXPECT_EQ(service.attend_manys(), 1);
}

// If its call breaks, the client must know whether such a job was accepted.
TEST(AttendManyTest, JobsThatMustNotRunTwiceHaveCallsOfTheirOwn) {
  FakeService service({});
  Client client(At(service));
  ClientJob job(60);
  AttendArguments named = job.Arguments(DataPath::kGateway);
  named.request_id = "name";
  EXPECT_TRUE(client.Attend(std::move(named)).ok());
  AttendArguments keeps = job.Arguments(DataPath::kGateway);
  keeps.spec.forward.keep_state = absl::Seconds(10);
  EXPECT_TRUE(client.Attend(std::move(keeps)).ok());
  StateJob gradients;
  EXPECT_TRUE(client.Attend(gradients.GradientsOfState(DataPath::kGateway)).ok());
  EXPECT_EQ(service.attends(), 3);
  EXPECT_EQ(service.attend_manys(), 0);
}

TEST(AttendManyTest, AJobsErrorLeavesItsCallToOthers) {
  FakeService service(
      Script({Act::kServe, Act::kQueueFull, Act::kServe, Act::kGroupLost, Act::kServe}));
  Client client(At(service));
  ExpectServed(&client);
  ClientJob again(60);
  const auto result = Send(&client, &again, 2);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 2);
  again.ExpectServed();
  ClientJob lost(60);
  const absl::Status status = Send(&client, &lost).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST") << status;
  ExpectServed(&client);
  EXPECT_EQ(service.attend_manys(), 1);
}

TEST(AttendManyTest, OutputsThatAreWrongEndTheirCall) {
  FakeService service(Script({Act::kServe, Act::kCorrupt, Act::kServe}));
  Client client(At(service));
  ExpectServed(&client);
  ClientJob corrupt(60);
  const absl::Status status = Send(&client, &corrupt).status();
  EXPECT_EQ(DetailOf(status).reason, "CHECKSUM_MISMATCH") << status;
  ExpectServed(&client);
  EXPECT_EQ(service.attend_manys(), 2);
}

TEST(AttendManyTest, AJobEndsAtItsDeadline) {
  FakeService service(Script({Act::kServe, Act::kNeverPlace, Act::kServe}));
  Client client(At(service));
  ExpectServed(&client);
  ClientJob late(60);
  AttendArguments arguments = late.Arguments(DataPath::kGateway);
  arguments.timeout = absl::Milliseconds(100);
  const absl::Status status = client.Attend(std::move(arguments)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(DetailOf(status).reason, "EXPIRED_IN_QUEUE") << status;
  ExpectServed(&client);
  EXPECT_EQ(service.attend_manys(), 2);
}

TEST(AttendManyTest, AJobIsCancelledWithItsCall) {
  FakeService service(Script({Act::kServe, Act::kNeverPlace, Act::kServe}));
  Client client(At(service));
  ExpectServed(&client);
  ClientJob job(60);
  AttendOutcome outcome;
  const auto call = client.AttendAsync(job.Arguments(DataPath::kGateway), outcome.Function());
  while (service.attends() < 2) std::this_thread::yield();
  call->Cancel();
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
  ExpectServed(&client);
}

// The answer to one job must never be used for another.
TEST(AttendManyTest, AnAnswerToAnotherJobIsAnError) {
  FakeService::Options options;
  options.wrong_tag = 1;
  FakeService service(options);
  Client client(At(service));
  ClientJob job(60);
  const absl::Status status = Send(&client, &job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(DetailOf(status).reason, "UNEXPECTED_OUTPUT") << status;
  EXPECT_EQ(job.out[0], -1) << "it has written all the same";
}

TEST(AttendManyTest, WhoDoesNotKnowItIsAskedAgainAfterAMinute) {
  AttendManyCalls calls({});
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  EXPECT_TRUE(calls.MayAsk(now));
  calls.IsUnknown(now);
  EXPECT_FALSE(calls.MayAsk(now));
  EXPECT_FALSE(calls.MayAsk(now + absl::Seconds(59)));
  EXPECT_TRUE(calls.MayAsk(now + absl::Minutes(1)));
  EXPECT_NE(calls.NewTag(), calls.NewTag());
}

class ProgressTest : public testing::TestWithParam<bool> {};

TEST_P(ProgressTest, CallersHearOfPlanAndProgress) {
  FakeService::Options options;
  options.only_attend = GetParam();
  FakeService service(options);
  Client client(At(service));
  for (int i = 0; i < 2; ++i) {
    ClientJob job(60);
    AttendArguments arguments = job.Arguments(DataPath::kGateway);
    std::string placed;
    JobProgress last;
    arguments.placed = [&](const std::string& job_id, const v1::Plan&) { placed = job_id; };
    arguments.progress = [&](const JobProgress& progress) { last = progress; };
    const auto result = client.Attend(std::move(arguments));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(placed, "job-1");
    EXPECT_GT(last.bytes_to_send, 0);
    EXPECT_EQ(last.bytes_sent, last.bytes_to_send);
    EXPECT_EQ(last.bytes_received, last.bytes_to_receive);
  }
  EXPECT_EQ(service.attend_manys(), 1);
}

INSTANTIATE_TEST_SUITE_P(Gateways, ProgressTest, testing::Bool(), [](const auto& info) {
  return info.param ? "OfAnEarlierVersion" : "OfThisVersion";
});

}  // namespace
}  // namespace annulus
