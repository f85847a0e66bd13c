// Calls of a worker's data plane whose clients are slow to read their ends, or never do.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "attention/error.h"
#include "base/steady_time.h"
#include "proto/status.h"
#include "tests/server/unread_call.h"
#include "tests/worker/data_plane_harness.h"
#include "worker/agent/agent_values.h"
#include "worker/data_plane_server.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

class UnreadEndTest : public DataPlaneTest {
 protected:
  void Start(absl::Duration end_patience) {
    DataPlaneServer::Options options;
    options.address = "127.0.0.1:0";
    options.board = &board_;
    options.pool = &copies_;
    options.end_patience = end_patience;
    server_ = *DataPlaneServer::Start(options);
  }
  // Now or soon.
  static bool Holds(const std::function<bool()>& condition) {
    const absl::Time deadline = SteadyNow() + kLong;
    while (!condition() && SteadyNow() < deadline) std::this_thread::yield();
    return condition();
  }
  ~UnreadEndTest() override { board_.Shutdown(absl::UnavailableError("over")); }

  std::unique_ptr<DataPlaneServer> server_;
};

TEST_F(UnreadEndTest, WhoReadsHearsThatTheJobHasEnded) {
  Start(absl::Minutes(10));
  constexpr int64_t kRows = 200000;  // 8 messages, of which the windows take no two.
  Open(id_, kRows);
  board_.Publish(id_, report_);
  const auto stub = v1::DataPlane::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto reader = stub->FetchShard(&context, All(id_, kRows));
  v1::FetchShardResponse response;
  ASSERT_TRUE(reader->Read(&response));
  board_.Close(id_, JobEndedError("its outputs are delivered"));
  int more = 0;
  while (reader->Read(&response)) ++more;
  const absl::Status end = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(DetailOf(end).reason, "JOB_ENDED") << end;
  EXPECT_LT(more, 7);
}

TEST_F(UnreadEndTest, WhoDoesNotReadKeepsAnEndedJobsMemoryForAShortTime) {
  Start(absl::Milliseconds(50));
  const std::weak_ptr<StagedShard> shard = Open(id_, 10);
  UnreadCall fetch(server_->port(), "/annulus.v1.DataPlane/FetchShard", All(id_, 10));
  ASSERT_TRUE(Holds([&] { return board_.calls() == 1; }));
  board_.Publish(id_, report_);  // And it is being written.
  board_.Close(id_, JobEndedError("its outputs are delivered"));
  EXPECT_TRUE(fetch.EndsWithin(kLong));
  EXPECT_TRUE(Holds([&] { return shard.expired(); }));
}

}  // namespace
}  // namespace annulus
