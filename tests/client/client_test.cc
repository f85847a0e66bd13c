#include "client/client.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/session/retry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using Act = FakeService::Act;

TEST(ClientTest, BothPathsBringEveryRowHome) {
  FakeService service({});
  Client client(At(service));
  for (DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    for (int64_t rows : {0, 1, 4, 100, 3000}) {
      ClientJob job(rows, rows == 4 ? 0 : 33);
      absl::StatusOr<AttendResult> result = client.Attend(job.Arguments(path));
      ASSERT_TRUE(result.ok()) << result.status() << " rows " << rows;
      EXPECT_EQ(result->path, path);
      EXPECT_EQ(result->attempts, 1);
      EXPECT_EQ(result->stats.attempts(), 1);
      job.ExpectServed();
    }
  }
}

TEST(ClientTest, AutoGoesDirectWhereWorkersAreReachableAndThroughTheGatewayElsewhere) {
  for (bool hidden : {false, true}) {
    FakeService::Options options;
    options.hide_workers = hidden;
    FakeService service(options);
    ClientOptions client_options = At(service);
    client_options.connect_timeout = hidden ? absl::Milliseconds(300) : absl::Seconds(20);
    Client client(client_options);
    ClientJob job(50);
    absl::StatusOr<AttendResult> result = client.Attend(job.Arguments(DataPath::kAuto));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->path, hidden ? DataPath::kGateway : DataPath::kDirect);
    EXPECT_EQ(service.run_jobs(), hidden ? 0 : 1);
    job.ExpectServed();
  }
}

TEST(ClientTest, ALostGroupAndAFullQueueAreSentAgain) {
  FakeService service(Script({Act::kQueueFull, Act::kGroupLost, Act::kServe}));
  Client client(At(service));
  ClientJob job(40);
  absl::StatusOr<AttendResult> result = client.Attend(job.Arguments(DataPath::kDirect));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 3);
  job.ExpectServed();
  FakeService gateway(Script({Act::kGroupLost, Act::kServe}));
  Client other(At(gateway));
  ClientJob again(40);
  result = other.Attend(again.Arguments(DataPath::kGateway));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 2);
  again.ExpectServed();
}

TEST(ClientTest, RetriesEnd) {
  FakeService service(Script({Act::kGroupLost}));
  Client client(At(service));
  ClientJob job(10);
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.max_attempts = 2;
  const absl::Status status = client.Attend(std::move(arguments)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST");
  EXPECT_EQ(service.run_jobs(), 2);
}

TEST(ClientTest, AJobThatIsPlacedAgainIsSentAgainInItsNewLayout) {
  FakeService service(Script({Act::kPlaceAgain}));
  Client client(At(service));
  ClientJob job(500);
  absl::StatusOr<AttendResult> result = client.Attend(job.Arguments(DataPath::kDirect));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 1);
  EXPECT_EQ(result->stats.attempts(), 2);
  EXPECT_EQ(result->plan.attempt(), 2);
  job.ExpectServed();
}

TEST(ClientTest, StreamsThatEndAfterTheirJobTakeNothingBack) {
  FakeService service(Script({Act::kEndsLate}));
  Client client(At(service));
  for (int i = 0; i < 5; ++i) {
    ClientJob job(60);
    AttendArguments arguments = job.Arguments(DataPath::kDirect);
    arguments.max_attempts = 1;
    const absl::StatusOr<AttendResult> result = client.Attend(std::move(arguments));
    ASSERT_TRUE(result.ok()) << result.status();
    job.ExpectServed();
  }
}

TEST(ClientTest, RowsAreNoAnswerToInputsThatWereNotTakenWhereOthersMayJoin) {
  FakeService service(Script({Act::kEndsLate}));
  Client client(At(service));
  ClientJob job(60000);  // Shards that are too large to be sent with their tickets.
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.max_attempts = 1;
  EXPECT_TRUE(client.Attend(arguments).ok());
  arguments.request_id = "r1";
  EXPECT_EQ(DetailOf(client.Attend(arguments).status()).reason, "JOB_ENDED");
}

TEST(ClientTest, AJobThatSucceededWithoutAllOfItsRowsHasFailed) {
  for (Act act : {Act::kEndsEarly, Act::kEndsFirst}) {  // In either order of the events.
    FakeService service(Script({act}));
    Client client(At(service));
    for (int i = 0; i < 5; ++i) {
      ClientJob job(60);
      AttendArguments arguments = job.Arguments(DataPath::kDirect);
      arguments.max_attempts = 1;
      EXPECT_EQ(client.Attend(std::move(arguments)).status().code(), absl::StatusCode::kAborted);
    }
  }
}

TEST(ClientTest, OutputsThatAreHereDoNotWaitForTheCoordinator) {
  // Without reports the coordinator sends the job's stats.
  for (const bool reports : {true, false}) {
    FakeService::Options options = Script({Act::kSaysSoLate});
    options.reports = reports;
    FakeService service(std::move(options));
    {
      Client client(At(service));
      ClientJob job(60);
      const auto result = client.Attend(job.Arguments(DataPath::kDirect));
      ASSERT_TRUE(result.ok()) << result.status();
      job.ExpectServed();
      EXPECT_EQ(result->stats.attempts(), 1);
      if (reports) {
        const auto& sent = result->stats.bytes_sent_per_rank();
        EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), int64_t{0}), 60);
      }
      service.LetJobsEnd();
      // A client that is destroyed first waits for the coordinator's last event; otherwise the job
      // would be cancelled.
    }
    EXPECT_EQ(service.ended_well(), 1);
  }
}

// A client with a kept state may name it at once.
TEST(ClientTest, AJobThatKeepsItsStateWaitsForItsEnd) {
  FakeService service(Script({Act::kSaysSoLate}));
  Client client(At(service));
  ClientJob job(60);
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.spec.forward.keep_state = absl::Minutes(1);
  arguments.timeout = absl::Milliseconds(300);
  EXPECT_EQ(client.Attend(arguments).status().code(), absl::StatusCode::kDeadlineExceeded);
  FakeService other(Script({Act::kSaysSoLate}));  // No earlier call may still end with OK.
  other.LetJobsEnd();
  arguments.timeout = absl::Seconds(20);
  ASSERT_TRUE(Client(At(other)).Attend(std::move(arguments)).ok());
  EXPECT_EQ(other.ended_well(), 1) << "before the client said so";
}

TEST(ClientTest, OutputsThatNeverComeEndWithTheDeadline) {
  for (const int64_t rows : {60, 30000}) {  // On reused calls, and on separate calls.
    FakeService service(Script({Act::kNeverSends}));
    Client client(At(service));
    ClientJob job(rows);
    AttendArguments arguments = job.Arguments(DataPath::kDirect);
    arguments.timeout = absl::Seconds(5);
    EXPECT_EQ(client.Attend(std::move(arguments)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(service.ended_well(), 1);
  }
}

TEST(ClientTest, AWrongChecksumIsDataLossAndNotSentAgain) {
  FakeService service(Script({Act::kCorrupt}));
  Client client(At(service));
  for (DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    ClientJob job(20);
    const absl::Status status = client.Attend(job.Arguments(path)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_EQ(DetailOf(status).reason, "CHECKSUM_MISMATCH");
  }
  EXPECT_EQ(service.run_jobs(), 1);
}

TEST(ClientTest, TheDeadlineEndsTheWait) {
  FakeService service(Script({Act::kNeverPlace}));
  Client client(At(service));
  ClientJob job(20);
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.timeout = absl::Milliseconds(150);
  const absl::Status status = client.Attend(std::move(arguments)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(DetailOf(status).reason, "EXPIRED_IN_QUEUE");
}

TEST(ClientTest, CancelEndsAJob) {
  FakeService service(Script({Act::kNeverPlace}));
  Client client(At(service));
  ClientJob job(20);
  AttendOutcome outcome;
  const auto call = client.AttendAsync(job.Arguments(DataPath::kDirect), outcome.Function());
  call->Cancel();
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(ClientTest, TheEndOfTheClientEndsItsJobs) {
  FakeService service(Script({Act::kNeverPlace}));
  ClientJob job(20);
  AttendOutcome outcome;
  {
    Client client(At(service));
    client.AttendAsync(job.Arguments(DataPath::kDirect), outcome.Function());
  }
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(ClientTest, ManyJobsOneAfterTheOther) {
  FakeService service({});
  Client client(At(service));
  for (int i = 0; i < 200; ++i) {
    ClientJob job(1 + i % 40);
    ASSERT_TRUE(client.Attend(job.Arguments(i % 2 ? DataPath::kDirect : DataPath::kGateway)).ok());
    job.ExpectServed();
  }
}

TEST(ClientTest, WrongMemoryIsRefusedBeforeAnyCall) {
  FakeService service({});
  Client client(At(service));
  const auto reason = [&](const std::function<void(AttendArguments*)>& spoil) {
    ClientJob job(10);
    AttendArguments arguments = job.Arguments(DataPath::kDirect);
    spoil(&arguments);
    return DetailOf(client.Attend(std::move(arguments)).status()).reason;
  };
  EXPECT_EQ(reason([](AttendArguments* a) { a->inputs.erase(TensorId::kK); }), "MISSING_TENSOR");
  EXPECT_EQ(reason([](AttendArguments* a) { a->inputs[TensorId::kQ].remove_suffix(1); }),
            "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason([](AttendArguments* a) { a->outputs[TensorId::kLse].remove_suffix(4); }),
            "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason([](AttendArguments* a) { a->inputs[TensorId::kDq] = {}; }), "UNKNOWN_TENSOR");
  EXPECT_EQ(reason([](AttendArguments* a) { a->spec.kv_heads = 0; }), "DIM_OVERFLOW");
  EXPECT_EQ(service.run_jobs(), 0);
}

TEST(ClientTest, WorkersThatAreGoneEndAJobThatTheCoordinatorForgets) {
  FakeService service(Script({Act::kWorkersGone}));
  ClientJob job(10);
  Client client(At(service));
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.max_attempts = 1;
  const absl::Status status = client.Attend(std::move(arguments)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).reason, "WORKER_UNREACHABLE");
}

TEST(ClientTest, AMergeComesAgainWhenItIsToldTo) {
  FakeService::Options options;
  options.refused_merges = 3;
  FakeService service(options);
  Client client(At(service));
  EXPECT_TRUE(client.MergePartials({}).ok());
}

TEST(ClientTest, AMergeThatIsRefusedTooOftenSaysSo) {
  FakeService::Options options;
  options.refused_merges = 4;
  FakeService service(options);
  Client client(At(service));
  EXPECT_EQ(DetailOf(client.MergePartials({}).status()).reason, "QUEUE_FULL");
}

TEST(CallWithRetriesTest, KeepsToDelaysAndDeadline) {
  absl::Time now = absl::UnixEpoch();
  std::vector<absl::Duration> left, slept;
  absl::Status answer = MakeError(absl::StatusCode::kResourceExhausted, "full",
                                  {"QUEUE_FULL", {}, {}, absl::Seconds(3)});
  const auto run = [&](absl::Duration limit) {
    left.clear();
    slept.clear();
    return CallWithRetries<int>(
               RetryPolicy(4, [] { return 0.0; }), now + limit, [&] { return now; },
               [&](absl::Duration delay) {
                 slept.push_back(delay);
                 now += delay;
               },
               [&](absl::Duration rest) -> absl::StatusOr<int> {
                 left.push_back(rest);
                 return answer;
               })
        .status();
  };
  EXPECT_EQ(DetailOf(run(absl::Seconds(8))).reason, "QUEUE_FULL");
  EXPECT_THAT(slept, testing::ElementsAre(absl::Seconds(3), absl::Seconds(3)));
  EXPECT_THAT(left, testing::ElementsAre(absl::Seconds(8), absl::Seconds(5), absl::Seconds(2)));
  EXPECT_EQ(run(absl::Minutes(1)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(left.size(), 4u);
  answer = absl::InvalidArgumentError("x");
  EXPECT_EQ(run(absl::Minutes(1)), answer);
  EXPECT_EQ(left.size(), 1u);
}

TEST(RetryPolicyTest, HonoursWhatTheErrorSays) {
  const absl::Time now = absl::UnixEpoch(), far = now + absl::Hours(1);
  const auto zero = [] { return 0.0; };
  const absl::Status lost =
      MakeError(absl::StatusCode::kAborted, "lost", {"GROUP_LOST", {}, {}, {}});
  const absl::Status full = MakeError(absl::StatusCode::kResourceExhausted, "full",
                                      {"QUEUE_FULL", {}, {}, absl::Seconds(3)});
  RetryPolicy policy(4, zero);
  EXPECT_EQ(policy.Next(lost, now, far), absl::Milliseconds(100));
  EXPECT_EQ(policy.Next(full, now, far), absl::Seconds(3));
  EXPECT_EQ(policy.Next(absl::UnavailableError("x"), now, far), absl::Seconds(5));
  EXPECT_EQ(policy.Next(lost, now, far), std::nullopt);
  RetryPolicy fresh(4, zero);
  EXPECT_EQ(fresh.Next(full, now, now + absl::Seconds(3)), std::nullopt);
  EXPECT_EQ(fresh.Next(absl::InvalidArgumentError("x"), now, far), std::nullopt);
  EXPECT_EQ(fresh.Next(absl::AbortedError("x"), now, far), std::nullopt);
  EXPECT_EQ(RetryPolicy(4, [] { return 0.5; }).Next(lost, now, far), absl::Milliseconds(90));
}

TEST(RetryPolicyTest, ALostWorkerMayComeBack) {
  const absl::Time now = absl::UnixEpoch(), far = now + absl::Hours(1);
  const absl::Status lost =
      MakeError(absl::StatusCode::kAborted, "lost", {"GROUP_LOST", {}, {}, absl::Seconds(1)});
  const absl::Status few =
      MakeError(absl::StatusCode::kFailedPrecondition, "few", {"INSUFFICIENT_WORKERS", {}, {}, {}});
  RetryPolicy policy(4, [] { return 0.0; });
  EXPECT_EQ(policy.Next(lost, now, far), absl::Seconds(1));
  EXPECT_EQ(policy.Next(few, now, far), absl::Seconds(2));
  // The remaining workers need not serve what the lost one served.
  const absl::Status lacking =
      MakeError(absl::StatusCode::kUnimplemented, "lacking", {"NOT_SERVED", {}, {}, {}});
  EXPECT_EQ(policy.Next(lacking, now, far), absl::Seconds(4));
  EXPECT_EQ(policy.Next(few, now, far), std::nullopt);
  // If no worker was lost, none will return.
  EXPECT_EQ(RetryPolicy(4, [] { return 0.0; }).Next(few, now, far), std::nullopt);
  EXPECT_EQ(RetryPolicy(4, [] { return 0.0; }).Next(lacking, now, far), std::nullopt);
}

}  // namespace
}  // namespace annulus
