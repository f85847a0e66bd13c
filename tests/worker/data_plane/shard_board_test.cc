// The board where clients' calls meet the agent's commands: waits, and the ends of calls and
// shards.
#include "worker/data_plane/shard_board.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/data_plane/data_plane_harness.h"

namespace annulus {
namespace {

using Event = EventLog::Event;

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

// Silent calls do not keep out calls with a ticket.
TEST_F(DataPlaneTest, CallsWithoutATicketGiveWayToThoseThatCome) {
  ShardBoard::Options options = BoardOptions();
  options.max_strangers = 3;
  ShardBoard board(options);
  board.SetIdentity(identity_);
  std::vector<std::unique_ptr<PutStream>> streams;
  std::vector<std::shared_ptr<PutCall>> calls;
  const auto start = [&] {
    streams.push_back(std::make_unique<PutStream>());
    calls.push_back(std::make_shared<PutCall>(&board, &copies_, streams.back().get()));
    calls.back()->Start();
    Advance(absl::Milliseconds(1));
  };
  for (int i = 0; i < 3; ++i) start();
  PutMessage message;
  message.ticket = Ticket(id_, 10);
  calls[0]->OnMessage(message);
  for (int i = 0; i < 20; ++i) start();
  EXPECT_TRUE(board.crowded());
  EXPECT_EQ(board.calls(), 4u) << "the one with its ticket, and three";
  for (int i = 0; i < 23; ++i) EXPECT_EQ(streams[i]->outcome.ended(), i > 0 && i < 20) << i;
  EXPECT_EQ(streams[1]->outcome.AwaitReason(), "TOO_MANY_CALLS");
  calls[19]->OnMessage(message);  // Too late.
  EXPECT_EQ(board.calls(), 4u);
  FetchStream fetch;
  auto fetching = std::make_shared<FetchCall>(&board, &copies_, &fetch);
  fetching->Start(All(id_, 10));
  EXPECT_FALSE(fetch.outcome.ended());
  board.Shutdown(absl::UnavailableError("going"));
  EXPECT_EQ(board.calls(), 0u);
}

// Any number of calls that wait for outputs costs their client nothing.
TEST_F(DataPlaneTest, OneTicketKeepsNobodyOut) {
  ShardBoard::Options options = BoardOptions();
  options.max_calls = 100;
  options.max_shard_calls = 3;
  ShardBoard board(options);
  board.SetIdentity(identity_);
  std::vector<std::unique_ptr<FetchStream>> streams;
  std::vector<std::shared_ptr<FetchCall>> calls;
  const auto fetch = [&](const ShardId& id) {
    streams.push_back(std::make_unique<FetchStream>());
    calls.push_back(std::make_shared<FetchCall>(&board, &copies_, streams.back().get()));
    calls.back()->Start(All(id, 10));
    return &streams.back()->outcome;
  };
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(fetch(id_)->ended());
  const absl::Status refused = fetch(id_)->AwaitEnd();
  EXPECT_EQ(DetailOf(refused).reason, "TOO_MANY_CALLS");
  EXPECT_EQ(DetailOf(refused).metadata["limit"], "3");
  EXPECT_TRUE(DetailOf(refused).retry_after.has_value());
  PutStream late;
  auto put = std::make_shared<PutCall>(&board, &copies_, &late);
  put->Start();
  PutMessage ticket;
  ticket.ticket = Ticket(id_, 10);
  put->OnMessage(ticket);
  EXPECT_EQ(late.outcome.AwaitReason(), "TOO_MANY_CALLS");
  EXPECT_EQ(board.calls(), 3u);
  EXPECT_FALSE(fetch({"job", 1, 1})->ended()) << "of the same job";
  calls[0]->OnCancelled();
  EXPECT_FALSE(fetch(id_)->ended());
  board.Shutdown(absl::UnavailableError("going"));
}

TEST_F(DataPlaneTest, WithoutAnIdentityItTakesNoTicket) {
  board_.SetIdentity({});
  PutStream stream;
  Put(&stream, SignTicket("", {id_.job_id, id_.attempt, id_.rank, "", "alice", 960,
                               Now() + absl::Hours(1)}));
  EXPECT_EQ(stream.outcome.AwaitReason(), "BAD_TICKET");
}

TEST_F(DataPlaneTest, AnOldTicketOpensNothing) {
  Open(id_, 10);
  const std::string old = Ticket(id_, 10), unknown = Ticket({"unknown", 1, 0}, 10);
  board_.Close(id_, absl::AbortedError("over"));
  PutStream ended, expired, waiting;
  Put(&ended, old);
  EXPECT_EQ(ended.outcome.AwaitReason(), "JOB_ENDED");
  Advance(absl::Hours(2));
  Put(&expired, old);
  EXPECT_EQ(expired.outcome.AwaitReason(), "TICKET_EXPIRED");
  Put(&waiting, unknown);
  EXPECT_FALSE(waiting.outcome.ended());
  Advance(absl::Seconds(10));
  board_.Tick();
  EXPECT_EQ(waiting.outcome.AwaitReason(), "TICKET_EXPIRED");
  EXPECT_EQ(waiting.outcome.AwaitEnd().code(), absl::StatusCode::kFailedPrecondition);
}

// The number of jobs that a worker runs while a call is in transit.
TEST_F(DataPlaneTest, WhoComesLateHearsThatTheJobHasEndedHoweverManyHave) {
  board_.Close(id_, absl::AbortedError("over"));
  for (int n = 0; n < 60000; ++n) {
    board_.Close({absl::StrCat("other-", n), 1, 0}, absl::AbortedError("over"));
  }
  PutStream late;
  Put(&late, Ticket(id_, 10));
  ASSERT_TRUE(late.outcome.ended());
  EXPECT_EQ(late.outcome.AwaitReason(), "JOB_ENDED");
}

TEST_F(DataPlaneTest, ClocksOfTwoMachinesNeedNotAgree) {
  for (const absl::Duration skew : {absl::Hours(24), -absl::Hours(24)}) {
    skew_ = skew;
    const ShardId id{absl::StrCat("skew-", absl::ToInt64Hours(skew)), 1, 0};
    Open(id, 10);
    PutStream stream;
    auto call = Put(&stream, Ticket(id, 10));
    ASSERT_TRUE(stream.outcome.AwaitRead(2)) << skew;
    Advance(absl::Seconds(90));
    board_.Tick();
    EXPECT_FALSE(stream.outcome.ended()) << skew;
    Advance(absl::Seconds(210));
    board_.Tick();
    EXPECT_EQ(stream.outcome.AwaitReason(), "UPLOAD_STALLED") << skew;
    EXPECT_EQ(board_.calls(), 0u);
  }
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
  Advance(absl::Minutes(2));  // … and no bytes are not.
  board_.Tick();
  EXPECT_EQ(stream.outcome.AwaitReason(), "UPLOAD_STALLED");
  const auto abandoned = log_.Wait(Event::kShardAbandoned);
  ASSERT_TRUE(abandoned.has_value());
  EXPECT_EQ(abandoned->shard_abandoned().error().reason(), "UPLOAD_STALLED");
}

// A client whose connection broke reconnects.
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
  Advance(absl::Minutes(2));  // No call is active now.
  board_.Tick();
  EXPECT_EQ(alive.outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 1);
}

TEST_F(DataPlaneTest, AnUploadThatStallsBesideACompleteShardEndsAlone) {
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
  EXPECT_TRUE(fast.outcome.AwaitEnd().ok());
  EXPECT_TRUE(fast.outcome.Get().shard.complete());
  EXPECT_FALSE(slow.outcome.ended()) << "what it still has may be other bytes";
  Advance(absl::Minutes(10));
  board_.Tick();
  EXPECT_EQ(slow.outcome.AwaitReason(), "UPLOAD_STALLED");
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  EXPECT_EQ(board_.calls(), 0u);
}

// A call on the board, beside others, that acts in the middle of a Tick.
class MeddlingCall final : public DataCall {
 public:
  explicit MeddlingCall(std::function<void()> meddle) : meddle_(std::move(meddle)) {}
  void OnShard(const ShardId&, std::shared_ptr<StagedShard>, const v1::ShardReport&) override {}
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

}  // namespace
}  // namespace annulus
