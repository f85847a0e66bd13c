// PutShard and GetShardStatus, and the board where they meet the agent.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/data_plane_harness.h"
#include "worker/data_plane/status_call.h"

namespace annulus {
namespace {

using Event = EventLog::Event;

TEST_F(DataPlaneTest, AnUploadInOrderCompletesTheShard) {
  Open(id_, 10);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  int reads = 2;  // The ticket's and the first chunk's.
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(stream.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  EXPECT_TRUE(stream.outcome.Get().shard.complete());
  EXPECT_EQ(stream.outcome.Get().shard.received_bytes(), 960);
  EXPECT_EQ(log_.Count(Event::kShardComplete), 1);
  EXPECT_EQ(board_.calls(), 0u);
  PutStream again;  // Complete already: answered at once, told once.
  Put(&again, Ticket(id_, 10));
  EXPECT_TRUE(again.outcome.AwaitEnd().ok());
  EXPECT_EQ(log_.Count(Event::kShardComplete), 1);
}

TEST_F(DataPlaneTest, LargeChunksAreCopiedInThePool) {
  const int64_t rows = 20000;  // 640 kB a tensor.
  auto shard = Open(id_, rows);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, rows));
  int reads = 2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(stream.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, rows, 'y'));
  }
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  EXPECT_EQ(static_cast<char>(shard->tensor_data(2)[rows * 32 - 1]), 'y');
}

TEST_F(DataPlaneTest, ATicketWaitsForItsReserve) {
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  EXPECT_FALSE(stream.outcome.ended());
  Open(id_, 10);
  EXPECT_TRUE(stream.outcome.AwaitRead(2));
  call->OnCancelled();
  EXPECT_EQ(stream.outcome.AwaitEnd().code(), absl::StatusCode::kCancelled);
}

TEST_F(DataPlaneTest, TheWaitForAReserveIsBounded) {
  PutStream stream;
  Put(&stream, Ticket(id_, 10));
  Advance(absl::Seconds(9));
  board_.Tick();
  EXPECT_FALSE(stream.outcome.ended());
  Advance(absl::Seconds(1));
  board_.Tick();
  EXPECT_EQ(stream.outcome.AwaitReason(), "SHARD_NOT_FOUND");
}

TEST_F(DataPlaneTest, TheWaitForATicketIsBoundedInTimeAndNumber) {
  std::vector<std::unique_ptr<PutStream>> streams;
  std::vector<std::shared_ptr<PutCall>> calls;
  const auto start = [&] {
    streams.push_back(std::make_unique<PutStream>());
    calls.push_back(std::make_shared<PutCall>(&board_, &copies_, streams.back().get()));
    calls.back()->Start();
  };
  for (int i = 0; i < 9; ++i) start();
  EXPECT_EQ(streams[8]->outcome.AwaitReason(), "TOO_MANY_CALLS");
  EXPECT_EQ(streams[8]->outcome.Get().reads, 0);
  Advance(absl::Seconds(9));
  board_.Tick();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(streams[i]->outcome.ended());
  Advance(absl::Seconds(1));
  board_.Tick();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(streams[i]->outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_EQ(board_.calls(), 0u);
  PutMessage late;
  late.ticket = Ticket(id_, 10);
  calls[0]->OnMessage(late);
  EXPECT_EQ(board_.calls(), 0u);
  start();
  board_.Shutdown(absl::UnavailableError("going"));
  EXPECT_EQ(streams[9]->outcome.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_F(DataPlaneTest, WrongTicketsAreRefused) {
  Open(id_, 10);
  std::string forged = Ticket(id_, 10);
  forged.back() ^= 1;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "BAD_TICKET"},
      {"nonsense", "BAD_TICKET"},
      {forged, "BAD_TICKET"},
      {Ticket(id_, 10, "mallory"), "BAD_TICKET"},
      {Ticket(id_, 11), "BAD_TICKET"},
  };
  for (const auto& [ticket, reason] : cases) {
    PutStream stream;
    Put(&stream, ticket);
    EXPECT_EQ(stream.outcome.AwaitReason(), reason);
    EXPECT_EQ(stream.outcome.AwaitEnd().code(), absl::StatusCode::kPermissionDenied);
  }
  const std::string old = Ticket(id_, 10);
  Advance(absl::Hours(2));
  PutStream expired;
  Put(&expired, old);
  EXPECT_EQ(expired.outcome.AwaitReason(), "TICKET_EXPIRED");
  board_.SetIdentity({"another", identity_.ticket_key});
  PutStream stale;
  Put(&stale, Ticket(id_, 10));
  EXPECT_EQ(stale.outcome.AwaitReason(), "BAD_TICKET");
  EXPECT_EQ(board_.calls(), 0u);
}

TEST_F(DataPlaneTest, TheProtocolOfAnUpload) {
  Open(id_, 10);
  PutStream chunk_first, two_tickets, none, missing, malformed;
  auto call = std::make_shared<PutCall>(&board_, &copies_, &chunk_first);
  call->Start();
  call->OnMessage(Chunk(TensorId::kQ, 0, 1));
  EXPECT_EQ(chunk_first.outcome.AwaitReason(), "STREAM_SEQUENCE");

  call = Put(&two_tickets, Ticket(id_, 10));
  PutMessage ticket;
  ticket.ticket = Ticket(id_, 10);
  call->OnMessage(ticket);
  EXPECT_EQ(two_tickets.outcome.AwaitReason(), "STREAM_SEQUENCE");

  call = std::make_shared<PutCall>(&board_, &copies_, &none);
  call->Start();
  call->OnHalfClose();
  EXPECT_EQ(none.outcome.AwaitReason(), "STREAM_SEQUENCE");

  call = Put(&missing, Ticket(id_, 10));
  call->OnMessage(Chunk(TensorId::kQ, 0, 4));
  ASSERT_TRUE(missing.outcome.AwaitRead(3));
  call->OnHalfClose();
  const absl::Status status = missing.outcome.AwaitEnd();
  EXPECT_EQ(DetailOf(status).reason, "MISSING_ROWS");
  ASSERT_EQ(DetailOf(status).fields.size(), 3u);
  EXPECT_EQ(DetailOf(status).fields[0].field, "q");

  call = Put(&malformed, Ticket(id_, 10));
  call->OnMalformed(absl::InvalidArgumentError("garbage"));
  EXPECT_EQ(malformed.outcome.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board_.calls(), 0u);
}

TEST_F(DataPlaneTest, ABadChunkEndsTheCallAndARetryResumes) {
  Open(id_, 10);
  PutStream bad, good;
  auto call = Put(&bad, Ticket(id_, 10));
  call->OnMessage(Chunk(TensorId::kQ, 0, 10));
  ASSERT_TRUE(bad.outcome.AwaitRead(3));
  PutMessage broken = Chunk(TensorId::kK, 0, 10);
  broken.chunk.crc32c = 1;
  call->OnMessage(broken);
  EXPECT_EQ(bad.outcome.AwaitReason(), "CHECKSUM_MISMATCH");

  v1::GetShardStatusRequest request;
  request.set_ticket(Ticket(id_, 10));
  absl::StatusOr<v1::ShardStatus> answer = absl::UnknownError("no answer");
  std::make_shared<StatusCall>(&board_, [&](absl::StatusOr<v1::ShardStatus> status) {
    answer = status;
  })->Start(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->received_bytes(), 320);
  ASSERT_EQ(answer->missing_size(), 2);
  EXPECT_EQ(answer->missing(0).tensor(), v1::TENSOR_ID_K);

  call = Put(&good, Ticket(id_, 10));
  int reads = 2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {  // q again: the same bytes.
    ASSERT_TRUE(good.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(good.outcome.AwaitEnd().ok());
}

TEST_F(DataPlaneTest, AStalledUploadIsCutAndAbandoned) {
  Open(id_, 100000);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 100000));
  for (int i = 0; i < 4; ++i) {  // 96 kB a second are enough …
    ASSERT_TRUE(stream.outcome.AwaitRead(2 + i));
    Advance(absl::Seconds(8));
    call->OnMessage(Chunk(TensorId::kQ, i * 24000, 24000));
    board_.Tick();
  }
  ASSERT_TRUE(stream.outcome.AwaitRead(6));
  EXPECT_FALSE(stream.outcome.ended());
  Advance(absl::Minutes(2));  // … and nothing is not.
  board_.Tick();
  EXPECT_EQ(stream.outcome.AwaitReason(), "UPLOAD_STALLED");
  const auto abandoned = log_.Wait(Event::kShardAbandoned);
  ASSERT_TRUE(abandoned.has_value());
  EXPECT_EQ(abandoned->shard_abandoned().error().reason(), "UPLOAD_STALLED");
}

// A client whose connection died comes again on another one.
TEST_F(DataPlaneTest, ADeadUploadBesideOneThatGoesOnEndsAlone) {
  Open(id_, 100000);
  PutStream dead, alive;
  auto first = Put(&dead, Ticket(id_, 100000));
  auto second = Put(&alive, Ticket(id_, 100000));
  ASSERT_TRUE(dead.outcome.AwaitRead(2));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(alive.outcome.AwaitRead(2 + i));
    Advance(absl::Seconds(30));
    second->OnMessage(Chunk(TensorId::kQ, i * 20000, 20000));
    ASSERT_TRUE(alive.outcome.AwaitRead(3 + i));
    board_.Tick();
  }
  EXPECT_EQ(dead.outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_FALSE(alive.outcome.ended());
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  Advance(absl::Minutes(2));  // Now nothing goes on.
  board_.Tick();
  EXPECT_EQ(alive.outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 1);
}

TEST_F(DataPlaneTest, ACompleteShardEndsItsOtherUploadsWell) {
  Open(id_, 10);
  PutStream slow, fast;
  auto first = Put(&slow, Ticket(id_, 10));
  first->OnMessage(Chunk(TensorId::kQ, 0, 5));
  ASSERT_TRUE(slow.outcome.AwaitRead(3));
  auto second = Put(&fast, Ticket(id_, 10));
  int reads = 2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(fast.outcome.AwaitRead(reads++));
    second->OnMessage(Chunk(id, 0, 10));
  }
  for (PutStream* stream : {&slow, &fast}) {
    EXPECT_TRUE(stream->outcome.AwaitEnd().ok());
    EXPECT_TRUE(stream->outcome.Get().shard.complete());
  }
  Advance(absl::Minutes(10));
  board_.Tick();
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  EXPECT_EQ(board_.calls(), 0u);
}

// Stands at the board beside others, and does something in the middle of a Tick.
class MeddlingCall final : public DataCall {
 public:
  explicit MeddlingCall(std::function<void()> meddle) : meddle_(std::move(meddle)) {}
  void OnShard(const ShardId&, std::shared_ptr<StagedShard>) override {}
  void End(const absl::Status&) override {}
  std::optional<absl::Status> Stalled(absl::Time) override {
    meddle_();
    return std::nullopt;
  }

 private:
  const std::function<void()> meddle_;
};

TEST_F(DataPlaneTest, AReserveThatComesWhileTheBoardLooksIsInTime) {
  const ShardId other{"other", 1, 0};
  Open(other, 10);
  const auto meddling = std::make_shared<MeddlingCall>([this] { Open(id_, 10); });
  board_.Join(meddling, Ticket(other, 10), ShardBoard::Stage::kReserved);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  Advance(absl::Seconds(10));
  board_.Tick();
  EXPECT_TRUE(stream.outcome.AwaitRead(2));
  EXPECT_FALSE(stream.outcome.ended());
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  call->OnCancelled();
  board_.Leave(meddling.get());
}

TEST_F(DataPlaneTest, AnUploadHasADeadline) {
  Open(id_, 10);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  Advance(absl::Seconds(90));
  board_.Tick();
  EXPECT_FALSE(stream.outcome.ended());
  Advance(absl::Minutes(4));
  board_.Tick();
  board_.Tick();
  EXPECT_EQ(stream.outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 1);
}

TEST_F(DataPlaneTest, ClosingEndsCallsAndFreesMemory) {
  Open(id_, 10);
  PutStream put;
  FetchStream fetch;
  auto put_call = Put(&put, Ticket(id_, 10));
  auto fetch_call = Fetch(&fetch, All(id_, 10));
  EXPECT_EQ(board_.calls(), 2u);
  board_.Close(id_, MakeError(absl::StatusCode::kAborted, "over", {"JOB_ENDED", {}, {}, {}}));
  EXPECT_EQ(put.outcome.AwaitReason(), "JOB_ENDED");
  EXPECT_EQ(fetch.outcome.AwaitReason(), "JOB_ENDED");
  EXPECT_EQ(board_.calls(), 0u);
  EXPECT_EQ(budget_->used_bytes(), 0);
  PutStream late;
  Put(&late, Ticket(id_, 10));
  EXPECT_EQ(late.outcome.AwaitReason(), "JOB_ENDED");
}

TEST_F(DataPlaneTest, CallsAreBounded) {
  Open(id_, 10);
  std::vector<std::unique_ptr<PutStream>> streams;
  std::vector<std::shared_ptr<PutCall>> calls;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(std::make_unique<PutStream>());
    calls.push_back(Put(streams.back().get(), Ticket(id_, 10)));
  }
  PutStream ninth;
  Put(&ninth, Ticket(id_, 10));
  EXPECT_EQ(ninth.outcome.AwaitReason(), "TOO_MANY_CALLS");
  board_.Shutdown(absl::UnavailableError("going"));
  for (auto& stream : streams)
    EXPECT_EQ(stream->outcome.AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

// Uploads race with the job's end: each call ends once, and all memory comes back.
TEST_F(DataPlaneTest, UploadsRaceWithTheEndOfTheirJob) {
  for (int round = 0; round < 50; ++round) {
    const ShardId id{absl::StrCat("race-", round), 1, 0};
    Open(id, 4000);
    std::vector<PutStream> streams(3);
    std::vector<std::thread> clients;
    for (PutStream& stream : streams) {
      clients.emplace_back([&] {
        auto call = Put(&stream, Ticket(id, 4000));
        int reads = 2;
        for (TensorId tensor : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
          stream.outcome.Await([&](const Outcome::State& state) {
            return state.status.has_value() || state.reads >= reads;
          });
          if (stream.outcome.ended()) return;
          ++reads;
          call->OnMessage(Chunk(tensor, 0, 4000));
        }
      });
    }
    std::thread agent([&] { board_.Close(id, absl::AbortedError("over")); });
    agent.join();
    for (std::thread& client : clients) client.join();
    for (PutStream& stream : streams) stream.outcome.AwaitEnd().IgnoreError();
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (budget_->used_bytes() > 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(budget_->used_bytes(), 0);
  EXPECT_EQ(board_.calls(), 0u);
}

}  // namespace
}  // namespace annulus
