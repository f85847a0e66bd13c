// Options of a client and of a call are followed or refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/error.h"
#include "client/client.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"

namespace annulus {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

TEST(ClientOptionsTest, MetadataGoWithEveryCallToWhomever) {
  FakeService::Options options;
  options.headers = std::make_shared<HeaderLog>("x-tenant");
  FakeService service(options);
  ClientOptions client_options = At(service);
  client_options.metadata = {{"x-tenant", "blue"}};
  Client client(client_options);
  for (const int64_t rows : {60, 30000}) {  // On reused calls, and on separate calls.
    for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
      ClientJob job(rows);
      ASSERT_TRUE(client.Attend(job.Arguments(path)).ok());
      job.ExpectServed();
    }
  }
  ASSERT_TRUE(client.GetServerInfo().ok());
  EXPECT_THAT(options.headers->by_method(),
              UnorderedElementsAre(Pair("/annulus.v1.Jobs/RunJob", "blue"),
                                   Pair("/annulus.v1.DataPlane/ExchangeShards", "blue"),
                                   Pair("/annulus.v1.DataPlane/PutShard", "blue"),
                                   Pair("/annulus.v1.DataPlane/FetchShard", "blue"),
                                   Pair("/annulus.v1.Attention/Attend", "blue"),
                                   Pair("/annulus.v1.Attention/AttendMany", "blue"),
                                   Pair("/annulus.v1.Attention/GetServerInfo", "blue")));
}

TEST(ClientOptionsTest, WithoutTimeToConnectAutoTakesTheGateway) {
  FakeService service({});
  ClientOptions options = At(service);
  options.connect_timeout = absl::ZeroDuration();
  Client client(options);
  ClientJob job(60);
  const absl::StatusOr<AttendResult> result = client.Attend(job.Arguments(DataPath::kAuto));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->path, DataPath::kGateway);
}

TEST(ClientOptionsTest, AJobIsSentOnceOrMore) {
  FakeService service({});
  Client client(At(service));
  for (const int attempts : {0, -1}) {
    ClientJob job(60);
    AttendArguments arguments = job.Arguments(DataPath::kDirect);
    arguments.max_attempts = attempts;
    const absl::Status status = client.Attend(std::move(arguments)).status();
    EXPECT_EQ(DetailOf(status).reason, "INVALID_REQUEST") << status;
    EXPECT_EQ(service.run_jobs(), 0);
  }
}

}  // namespace
}  // namespace annulus
