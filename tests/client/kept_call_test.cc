// Calls of small shards, which later jobs reuse.
#include <atomic>
#include <utility>

#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_errors.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

TEST(KeptCallTest, SmallJobsShareOne) {
  FakeService service({});
  Client client(At(service));
  for (int i = 0; i < 5; ++i) {
    ClientJob job(60);
    const auto result = client.Attend(job.Arguments(DataPath::kDirect));
    ASSERT_TRUE(result.ok()) << result.status();
    job.ExpectServed();
  }
  EXPECT_EQ(service.exchanges(), 3);  // One for each rank.
  ClientJob large(30000);             // 640 kB of queries a rank.
  const int before = service.exchanges();
  ASSERT_TRUE(client.Attend(large.Arguments(DataPath::kDirect)).ok());
  large.ExpectServed();
  EXPECT_EQ(service.exchanges(), before);
}

TEST(KeptCallTest, OneThatHasEndedIsReplacedOnce) {
  for (const grpc::Status& end :
       {Gone(), Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS")}) {
    FakeService::Options options;
    options.world = 1;
    options.ends_exchange = [end](int shard) { return shard == 2 ? end : grpc::Status::OK; };
    FakeService service(options);
    Client client(At(service));
    for (int i = 0; i < 6; ++i) {
      ClientJob job(60);
      AttendArguments arguments = job.Arguments(DataPath::kDirect);
      arguments.max_attempts = 1;
      const auto result = client.Attend(std::move(arguments));
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->stats.attempts(), 1);
      job.ExpectServed();
    }
    EXPECT_EQ(service.run_jobs(), 6);
    EXPECT_EQ(service.exchanges(), 6);  // The first shard of each was served, the second was not.
  }
}

// If the reused call may have served the shard, an error for it on the next call proves nothing.
TEST(KeptCallTest, AShardThatAnEndedCallMayHaveServedIsSentAgain) {
  FakeService::Options options;
  options.world = 1;
  std::atomic<int> shards{0};
  options.ends_exchange = [&shards](int) {
    const int n = ++shards;
    if (n == 2) return Gone();
    return n == 3 ? grpc::Status(grpc::StatusCode::CANCELLED, "cut") : grpc::Status::OK;
  };
  FakeService service(options);
  Client client(At(service));
  for (int i = 0; i < 2; ++i) {
    ClientJob job(60);
    const auto result = client.Attend(job.Arguments(DataPath::kDirect));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->attempts, 1 + i);
    job.ExpectServed();
  }
}

TEST(KeptCallTest, ANewCallThatEndsIsTheWorkersEnd) {
  FakeService::Options options;
  options.world = 1;
  options.ends_exchange = [](int) { return Gone(); };
  FakeService service(options);
  Client client(At(service));
  ClientJob job(60);
  AttendArguments arguments = job.Arguments(DataPath::kDirect);
  arguments.max_attempts = 1;
  arguments.timeout = absl::Seconds(10);
  EXPECT_FALSE(client.Attend(std::move(arguments)).ok());
  EXPECT_EQ(service.exchanges(), 1);
}

}  // namespace
}  // namespace annulus
