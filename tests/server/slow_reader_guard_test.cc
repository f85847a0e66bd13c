// Calls of a worker's data plane whose clients are slow to read the end of the call, or never read
// it.
#include "proto/rpc/slow_reader_guard.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "base/error.h"
#include "base/steady_time.h"
#include "proto/rpc/slow_reader_registry.h"
#include "proto/wire/status.h"
#include "tests/server/unread_call.h"
#include "tests/worker/data_plane/data_plane_harness.h"
#include "worker/agent/agent_values.h"
#include "worker/data_plane_server.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

class SlowReaderGuardTest : public DataPlaneTest {
 protected:
  void Start(const DataPlaneService::Patience& patience) {
    DataPlaneServer::Options options;
    options.address = "127.0.0.1:0";
    options.board = &board_;
    options.pool = &copies_;
    options.patience = patience;
    server_ = *DataPlaneServer::Start(options);
  }
  // True if the condition holds now or soon.
  static bool Holds(const std::function<bool()>& condition) {
    const absl::Time deadline = SteadyNow() + kLong;
    while (!condition() && SteadyNow() < deadline) std::this_thread::yield();
    return condition();
  }
  ~SlowReaderGuardTest() override { board_.Shutdown(absl::UnavailableError("over")); }

  std::unique_ptr<DataPlaneServer> server_;
};

TEST_F(SlowReaderGuardTest, AReaderReceivesTheEndOfTheJob) {
  Start({/*end=*/absl::Minutes(10)});
  constexpr int64_t kRows = 200000;  // 8 messages of about 1 MiB.
  Open(id_, kRows);
  board_.Publish(id_, report_);
  grpc::ChannelArguments arguments;
  // Sockets may hold all messages. Without the probe, the window permits 64 KiB beyond those that
  // were read, on any machine.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::DataPlane::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", server_->port()), grpc::InsecureChannelCredentials(), arguments));
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
  EXPECT_LE(more, 2) << "the one that was being written, and the one that was on its way";
}

TEST_F(SlowReaderGuardTest, WhoDoesNotReadKeepsAnEndedJobsMemoryForAShortTime) {
  Start({/*end=*/absl::Milliseconds(50)});
  const std::weak_ptr<StagedShard> shard = Open(id_, 10);
  UnreadCall fetch(server_->port(), "/annulus.v1.DataPlane/FetchShard", All(id_, 10));
  ASSERT_TRUE(Holds([&] { return board_.calls() == 1; }));
  board_.Publish(id_, report_);  // A message is being written.
  board_.Close(id_, JobEndedError("its outputs are delivered"));
  EXPECT_TRUE(fetch.EndsWithin(kLong));
  EXPECT_TRUE(Holds([&] { return shard.expired(); }));
}

// The calls have left the board: neither its limits nor the end of the job affect them.
TEST_F(SlowReaderGuardTest, AnswersThatNobodyReadsEndByThemselves) {
  Start({absl::Minutes(10), /*answer=*/absl::Milliseconds(50)});
  Open(id_, 10);
  v1::GetShardStatusRequest status;
  status.set_ticket(Ticket(id_, 10));
  UnreadCall asks(server_->port(), "/annulus.v1.DataPlane/GetShardStatus", status);
  EXPECT_TRUE(asks.EndsWithin(kLong));
  v1::PutShardRequest whole;
  whole.set_ticket(Ticket(id_, 10));
  for (const v1::TensorId id : {v1::TENSOR_ID_Q, v1::TENSOR_ID_K, v1::TENSOR_ID_V}) {
    v1::Chunk& chunk = *whole.add_chunks();
    chunk.set_tensor(id);
    chunk.set_row_count(10);
    chunk.set_data(std::string(320, 'x'));
  }
  UnreadCall puts(server_->port(), "/annulus.v1.DataPlane/PutShard", whole);
  EXPECT_TRUE(log_.Wait(EventLog::Event::kShardComplete).has_value());
  EXPECT_TRUE(puts.EndsWithin(kLong));
  EXPECT_EQ(board_.calls(), 0u);
}

TEST_F(SlowReaderGuardTest, AnswersThatNobodyReadsAreCounted) {
  Start({absl::Minutes(10), /*answer=*/absl::Minutes(10)});
  Open(id_, 10);
  v1::GetShardStatusRequest request;
  request.set_ticket(Ticket(id_, 10));
  const UnreadCall call(server_->port(), "/annulus.v1.DataPlane/GetShardStatus", request);
  EXPECT_TRUE(Holds([] { return SlowReaderRegistry::Get().calls() == 1; }));
  // The request, and what it lacks.
  EXPECT_GT(SlowReaderRegistry::Get().bytes(), request.ByteSizeLong());
}

}  // namespace
}  // namespace annulus
