// Jobs that keep their state, and whose end is not reported.
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using Act = FakeService::Act;

AttendArguments Keeping(ClientJob* job, DataPath path) {
  AttendArguments arguments = job->Arguments(path);
  arguments.spec.forward.keep_state = absl::Minutes(1);
  return arguments;
}

class LostEndTest : public testing::TestWithParam<DataPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, LostEndTest,
                         testing::Values(DataPath::kDirect, DataPath::kGateway));

TEST_P(LostEndTest, WhereItsRowsAndItsStateAreThereTheJobIsTheAnswer) {
  FakeService service(Script({Act::kWordLost, Act::kServe}));
  Client client(At(service));
  ClientJob job(60);
  const auto result = client.Attend(Keeping(&job, GetParam()));
  ASSERT_TRUE(result.ok()) << result.status();
  job.ExpectServed();
  EXPECT_EQ(result->attempts, 1);
  EXPECT_EQ(result->stats.attempts(), 1);
  EXPECT_EQ(result->release_unconfirmed, "");
  EXPECT_EQ(service.kept().held(), 1);
}

TEST_P(LostEndTest, ALostAnswerLeavesNoSecondState) {
  FakeService service(Script({Act::kAnswerLost, Act::kServe}));
  Client client(At(service));
  ClientJob job(60);
  const auto result = client.Attend(Keeping(&job, GetParam()));
  ASSERT_TRUE(result.ok()) << result.status();
  job.ExpectServed();
  EXPECT_EQ(result->attempts, 2);
  EXPECT_EQ(service.kept().held(), 1);
}

TEST_P(LostEndTest, NorAStateWhereItIsNotSentAgain) {
  FakeService service(Script({Act::kAnswerLost}));
  Client client(At(service));
  ClientJob job(60);
  AttendArguments arguments = Keeping(&job, GetParam());
  arguments.max_attempts = 1;
  EXPECT_EQ(client.Attend(arguments).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(service.kept().held(), 0);
}

TEST_P(LostEndTest, AJobThatIsNotOverIsCancelledBeforeItIsSentAgain) {
  FakeService::Options options = Script({Act::kWordLost, Act::kServe});
  options.runs_when_asked = true;
  FakeService service(options);
  Client client(At(service));
  ClientJob job(60);
  const auto result = client.Attend(Keeping(&job, GetParam()));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->attempts, 2);
  EXPECT_TRUE(service.kept().cancelled());
}

TEST_P(LostEndTest, OneThatIsCancelledMeanwhileLeavesNoStateEither) {
  FakeService::Options options = Script({Act::kWordLost});
  options.silent_jobs = true;
  FakeService service(options);
  Client client(At(service));
  ClientJob job(60);
  AttendOutcome outcome;
  const auto call = client.AttendAsync(Keeping(&job, GetParam()), outcome.Function());
  ASSERT_TRUE(service.AwaitAsked());
  call->Cancel();
  service.AnswerJobs();
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(service.kept().held(), 0);
}

}  // namespace
}  // namespace annulus
