// PutShard and GetShardStatus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/data_plane/data_plane_harness.h"
#include "worker/data_plane/status_call.h"

namespace annulus {
namespace {

using Event = EventLog::Event;

TEST_F(DataPlaneTest, AnUploadInOrderCompletesTheShard) {
  Open(id_, 10);
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  int reads = 2;  // Reads of the ticket and of the first chunk.
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(stream.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  EXPECT_TRUE(stream.outcome.Get().shard.complete());
  EXPECT_EQ(stream.outcome.Get().shard.received_bytes(), 960);
  EXPECT_EQ(log_.Count(Event::kShardComplete), 1);
  EXPECT_EQ(board_.calls(), 0u);
  PutStream
      // Already complete: a client without further data gets OK, and completion is reported once.
      again;
  call = Put(&again, Ticket(id_, 10));
  ASSERT_TRUE(again.outcome.AwaitRead(2));
  call->OnHalfClose();
  EXPECT_TRUE(again.outcome.AwaitEnd().ok());
  EXPECT_EQ(log_.Count(Event::kShardComplete), 1);
}

// Two owners of one job (same request_id) with different data: at most one of them gets an answer.
TEST_F(DataPlaneTest, ACompleteShardIsNoAnswerToOtherBytes) {
  Open(id_, 10);
  PutStream first, same, other, whole;
  auto slow = Put(&other, Ticket(id_, 10));  // This call is half-way when the shard is complete.
  ASSERT_TRUE(other.outcome.AwaitRead(2));
  slow->OnMessage(Chunk(TensorId::kQ, 0, 10));
  ASSERT_TRUE(other.outcome.AwaitRead(3));
  for (PutStream* stream : {&first, &same}) {
    auto call = Put(stream, Ticket(id_, 10));
    int reads = 2;
    for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      ASSERT_TRUE(stream->outcome.AwaitRead(reads++));
      call->OnMessage(Chunk(id, 0, 10));
    }
    EXPECT_TRUE(stream->outcome.AwaitEnd().ok());
  }
  EXPECT_FALSE(other.outcome.ended());
  slow->OnMessage(Chunk(TensorId::kK, 0, 10));
  ASSERT_TRUE(other.outcome.AwaitRead(4));
  slow->OnMessage(Chunk(TensorId::kV, 0, 10, 'y'));
  EXPECT_EQ(other.outcome.AwaitReason(), "CHUNK_OVERLAP");

  PutMessage message = Chunk(TensorId::kQ, 0, 10, 'y');
  message.ticket = Ticket(id_, 10);
  auto late = std::make_shared<PutCall>(&board_, &copies_, &whole);
  late->Start();
  late->OnMessage(std::move(message));
  EXPECT_EQ(whole.outcome.AwaitReason(), "CHUNK_OVERLAP");
  EXPECT_EQ(log_.Count(Event::kShardComplete), 1);
}

TEST_F(DataPlaneTest, AJobThatEndsEndsAnUploadThatHasNotBroughtAll) {
  Open(id_, 10);
  PutStream first, other;
  auto slow = Put(&other, Ticket(id_, 10));
  auto call = Put(&first, Ticket(id_, 10));
  int reads = 2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(first.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(first.outcome.AwaitEnd().ok());
  board_.Close(id_, absl::AbortedError("all is delivered"));
  EXPECT_EQ(other.outcome.AwaitEnd().code(), absl::StatusCode::kAborted);
}

TEST_F(DataPlaneTest, LargeChunksAreCopiedInThePool) {
  const int64_t rows = 20000;  // 640 kB per tensor.
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
  board_.SetIdentity({"another", identity_.ticket_key});
  PutStream stale;
  Put(&stale, Ticket(id_, 10));
  EXPECT_EQ(stale.outcome.AwaitReason(), "BAD_TICKET");
  EXPECT_EQ(board_.calls(), 0u);
}

TEST_F(DataPlaneTest, AWholeShardFitsBesideItsTicket) {
  PutMessage all;
  all.ticket = Ticket(id_, 10);
  auto storage = std::make_shared<std::vector<PutMessage>>();
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    storage->push_back(Chunk(id, 0, 10, static_cast<char>('a' + static_cast<int>(id))));
    all.parts.push_back(storage->back().parts[0]);
  }
  all.storage = storage;
  PutStream stream;
  auto call = std::make_shared<PutCall>(&board_, &copies_, &stream);
  call->Start();
  call->OnMessage(std::move(all));
  EXPECT_FALSE(stream.outcome.ended());  // Its Reserve has not come.
  auto shard = Open(id_, 10);
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  EXPECT_TRUE(stream.outcome.Get().shard.complete());
  EXPECT_EQ(stream.outcome.Get().reads, 1);
  EXPECT_TRUE(log_.Wait(Event::kShardComplete).has_value());  // Reported after the end of the call.
  EXPECT_NE(reporter_.load(), std::this_thread::get_id()) << "who has the agent's turn has copied";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(static_cast<char>(shard->tensor_data(i)[0]),
              'a' + i + static_cast<int>(TensorId::kQ));
  }
}

TEST_F(DataPlaneTest, WhatARefusedMessageBroughtBeforeStaysAndMayCompleteTheShard) {
  Open(id_, 10);
  PutMessage all;
  auto storage = std::make_shared<std::vector<PutMessage>>();
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV, TensorId::kOut}) {
    storage->push_back(Chunk(id, 0, 10));
    all.parts.push_back(storage->back().parts[0]);
  }
  all.storage = storage;
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  call->OnMessage(std::move(all));
  EXPECT_EQ(stream.outcome.AwaitReason(), "UNKNOWN_TENSOR");
  EXPECT_EQ(log_.Count(EventLog::Event::kShardComplete), 1);
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

  PutStream nothing;
  call = Put(&nothing, Ticket(id_, 10));
  call->OnMessage({});
  EXPECT_EQ(nothing.outcome.AwaitReason(), "STREAM_SEQUENCE");

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
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(" of q, rows "));

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
  broken.parts[0].header.crc32c = 1;
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
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {  // q again, with the same bytes.
    ASSERT_TRUE(good.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(good.outcome.AwaitEnd().ok());
}

// Uploads race with the job's end: each call ends once, and all memory is returned.
TEST_F(DataPlaneTest, AnUploadEndsWellHoweverSoonItsJobIsOver) {
  Open(id_, 10);
  on_event_ = [this](const EventLog::Event& event) {
    if (event.has_shard_complete()) board_.Close(id_, absl::AbortedError("all is delivered"));
  };
  PutStream stream;
  auto call = Put(&stream, Ticket(id_, 10));
  int reads = 2;
  for (TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    ASSERT_TRUE(stream.outcome.AwaitRead(reads++));
    call->OnMessage(Chunk(id, 0, 10));
  }
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok()) << stream.outcome.AwaitEnd();
}

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
