// FetchShard.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "tests/worker/data_plane/data_plane_harness.h"
#include "worker/agent/agent_values.h"

namespace annulus {
namespace {

using Event = EventLog::Event;

TEST_F(DataPlaneTest, OutputsAreFetchedWhenTheyArePublished) {
  const int64_t rows = 40000;  // 1.28 MB of output and 320 kB of LSE: two messages.
  auto shard = Open(id_, rows);
  std::memset(shard->tensor_data(3), 'o', rows * 32);
  std::memset(shard->tensor_data(4), 'l', rows * 8);
  FetchStream stream;
  auto call = Fetch(&stream, All(id_, rows));
  EXPECT_FALSE(stream.outcome.ended());
  board_.Publish(id_, report_);
  ASSERT_TRUE(stream.outcome.AwaitMessages(1));
  EXPECT_FALSE(stream.outcome.ended());
  call->OnWritten(true);
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  EXPECT_EQ(stream.outcome.Get().report.bytes_sent(), 321);
  int64_t out_rows = 0;
  ASSERT_EQ(stream.outcome.Get().messages.size(), 2u);
  for (const auto& message : stream.outcome.Get().messages) {
    int64_t bytes = 0;
    for (const LeavingChunk& chunk : message) {
      bytes += chunk.bytes;
      EXPECT_EQ(chunk.crc32c, Crc32c(chunk.data, chunk.bytes));
      EXPECT_EQ(static_cast<char>(chunk.data[0]), chunk.tensor == TensorId::kOut ? 'o' : 'l');
      if (chunk.tensor == TensorId::kOut) out_rows += chunk.row_count;
    }
    EXPECT_LE(bytes, kMaxChunkBytes);
  }
  EXPECT_EQ(out_rows, rows);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
  call->OnDone(/*delivered=*/true);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
  EXPECT_EQ(board_.calls(), 0u);
}

TEST_F(DataPlaneTest, ARowOfMoreThanAChunkIsSentByHeads) {
  constexpr int64_t kRows = 3, kHeadBytes = 400000;
  constexpr int32_t kHeads = 5;
  // An input with as many bytes as the ticket states.
  const std::vector<TensorInfo> table = {
      {TensorId::kQ, RowSpace::kQuery, Direction::kInput, 1, 24, DataType::kFp32},
      {TensorId::kDBias, RowSpace::kQuery, Direction::kOutput, kHeads, kHeadBytes / 4,
       DataType::kFp32}};
  auto shard = *StagedShard::Create(pool_.get(), {table, kRows, kRows}, nullptr);
  board_.Open(id_, "alice", shard, {absl::Minutes(5), {}});
  for (int64_t i = 0; i < kRows * kHeads; ++i) {
    std::memset(shard->tensor_data(1) + i * kHeadBytes, static_cast<int>('a' + i), kHeadBytes);
  }
  FetchStream stream;
  auto call = Fetch(&stream, All(id_, kRows));
  board_.Publish(id_, report_);
  for (size_t n = 1; !stream.outcome.ended(); ++n) {
    ASSERT_TRUE(stream.outcome.AwaitMessages(n));
    if (!stream.outcome.ended()) call->OnWritten(true);
  }
  const absl::Status ended = stream.outcome.AwaitEnd();
  EXPECT_TRUE(ended.ok()) << ended;
  std::vector<int> seen(kRows * kHeads);
  for (const auto& message : stream.outcome.Get().messages) {
    int64_t bytes = 0;
    for (const LeavingChunk& chunk : message) {
      bytes += chunk.bytes;
      ASSERT_EQ(chunk.bytes, chunk.head_count * kHeadBytes);
      EXPECT_EQ(chunk.crc32c, Crc32c(chunk.data, chunk.bytes));
      for (int32_t head = 0; head < chunk.head_count; ++head) {
        const int64_t cell = chunk.row_begin * kHeads + chunk.head_begin + head;
        EXPECT_EQ(static_cast<int64_t>(chunk.data[head * kHeadBytes]), 'a' + cell);
        ++seen[cell];
      }
    }
    EXPECT_LE(bytes, kMaxChunkBytes);
  }
  EXPECT_EQ(seen, std::vector<int>(kRows * kHeads, 1));
  call->OnDone(/*delivered=*/true);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
}

TEST_F(DataPlaneTest, PartsFetchedByTwoCallsDrainIt) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  for (int half = 0; half < 2; ++half) {
    v1::FetchShardRequest request = All(id_, 10);
    for (v1::TensorId id : {v1::TENSOR_ID_OUT, v1::TENSOR_ID_LSE}) {
      v1::MissingRows* part = request.add_parts();
      part->set_tensor(id);
      part->set_row_begin(half * 5);
      part->set_row_count(5);
    }
    EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
    FetchStream stream;
    auto call = Fetch(&stream, request);
    EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
    call->OnDone(true);
  }
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
}

TEST_F(DataPlaneTest, WhatTheClientDidNotGetIsNotDrained) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  FetchStream stream;
  auto call = Fetch(&stream, All(id_, 10));
  EXPECT_TRUE(stream.outcome.AwaitEnd().ok());
  call->OnDone(/*delivered=*/false);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
}

TEST_F(DataPlaneTest, BadPartsAreRefused) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  for (const auto& [tensor, begin, count, reason] :
       std::vector<std::tuple<v1::TensorId, int64_t, int64_t, std::string>>{
           {v1::TENSOR_ID_Q, 0, 1, "UNKNOWN_TENSOR"},
           {v1::TENSOR_ID_OUT, 0, 11, "CHUNK_OUT_OF_RANGE"},
           {v1::TENSOR_ID_OUT, -1, 1, "CHUNK_OUT_OF_RANGE"},
           {v1::TENSOR_ID_OUT, 5, int64_t{1} << 62, "CHUNK_OUT_OF_RANGE"},
           {v1::TENSOR_ID_OUT, 5, 0, "CHUNK_OUT_OF_RANGE"}}) {
    v1::FetchShardRequest request = All(id_, 10);
    v1::MissingRows* part = request.add_parts();
    part->set_tensor(tensor);
    part->set_row_begin(begin);
    part->set_row_count(count);
    FetchStream stream;
    Fetch(&stream, request);
    EXPECT_EQ(stream.outcome.AwaitReason(), reason);
  }
}

TEST_F(DataPlaneTest, ARequestOfTooManyPartsIsNotKept) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  for (const int parts : {FetchCall::kMaxParts, FetchCall::kMaxParts + 1}) {
    v1::FetchShardRequest request = All(id_, 10);
    for (int i = 0; i < parts; ++i) {
      v1::MissingRows* part = request.add_parts();
      part->set_tensor(v1::TENSOR_ID_OUT);
      part->set_row_count(1);
    }
    FetchStream stream;
    auto call = Fetch(&stream, request);
    if (parts == FetchCall::kMaxParts) {
      EXPECT_TRUE(stream.outcome.AwaitMessages(1));
      call->OnCancelled();
      continue;
    }
    EXPECT_EQ(stream.outcome.AwaitReason(), "LIMIT_EXCEEDED");
    EXPECT_EQ(DetailOf(stream.outcome.AwaitEnd()).fields[0].field, "parts");
  }
}

TEST_F(DataPlaneTest, AReaderThatNeverReadsIsCut) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  FetchStream stream;
  auto call = Fetch(&stream, All(id_, 10));
  ASSERT_TRUE(stream.outcome.AwaitMessages(1));
  Advance(absl::Minutes(2));
  board_.Tick();
  EXPECT_TRUE(stream.outcome.Get().cancelled);
  const auto abandoned = log_.Wait(Event::kShardAbandoned);
  ASSERT_TRUE(abandoned.has_value());
  EXPECT_EQ(abandoned->shard_abandoned().error().reason(), "DOWNLOAD_STALLED");
  call->OnDone(false);
  EXPECT_EQ(board_.calls(), 0u);
}

// Another call has fetched the outputs; the job's end comes after the message in progress.
TEST_F(DataPlaneTest, AJobThatEndsWhileSomebodyReadsSaysSo) {
  for (const bool last : {false, true}) {
    const ShardId id{"job", last ? 2 : 1, 0};
    const int64_t rows = last ? 10 : 40000;
    Open(id, rows);
    board_.Publish(id, report_);
    FetchStream stream;
    auto call = Fetch(&stream, All(id, rows));
    ASSERT_TRUE(stream.outcome.AwaitMessages(1));
    board_.Close(id, JobEndedError("its outputs are delivered"));
    EXPECT_EQ(stream.outcome.AwaitReason(), last ? "" : "JOB_ENDED");
    EXPECT_FALSE(stream.outcome.Get().cancelled);
    EXPECT_EQ(stream.outcome.Get().unread, last ? 400 : kMaxChunkBytes);
    call->OnWritten(true);
    call->OnDone(last);
    EXPECT_EQ(stream.outcome.Get().messages.size(), 1u);
    EXPECT_EQ(board_.calls(), 0u);
  }
}

TEST_F(DataPlaneTest, ADeadDownloadBesideOneThatGoesOnEndsAlone) {
  const int64_t rows = 200000;  // 8 messages, and a lease of 182 s.
  Open(id_, rows);
  board_.Publish(id_, report_);
  FetchStream dead, alive;
  auto first = Fetch(&dead, All(id_, rows));
  auto second = Fetch(&alive, All(id_, rows));
  ASSERT_TRUE(dead.outcome.AwaitMessages(1));
  for (size_t n = 1; n <= 4; ++n) {
    ASSERT_TRUE(alive.outcome.AwaitMessages(n));
    Advance(absl::Seconds(30));
    second->OnWritten(true);
    ASSERT_TRUE(alive.outcome.AwaitMessages(n + 1));
    board_.Tick();
  }
  EXPECT_TRUE(dead.outcome.Get().cancelled);
  EXPECT_EQ(dead.outcome.AwaitReason(), "DOWNLOAD_STALLED");
  first->OnDone(false);
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  for (size_t n = 5; n <= 7; ++n) {
    second->OnWritten(true);
    ASSERT_TRUE(alive.outcome.AwaitMessages(n + 1));
  }
  EXPECT_TRUE(alive.outcome.AwaitEnd().ok());
  second->OnDone(true);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
  FetchStream again;  // All outputs have been fetched: this call is not waited for.
  auto third = Fetch(&again, All(id_, rows));
  ASSERT_TRUE(again.outcome.AwaitMessages(1));
  Advance(absl::Minutes(2));
  board_.Tick();
  EXPECT_EQ(again.outcome.AwaitReason(), "DOWNLOAD_STALLED");
  third->OnDone(false);
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
}

TEST_F(DataPlaneTest, OutputsThatNobodyFetchesAreAbandoned) {
  Open(id_, 10);
  board_.Publish(id_, report_);
  Advance(absl::Seconds(59));
  board_.Tick();
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  Advance(absl::Seconds(2));
  board_.Tick();
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 1);
}

TEST_F(DataPlaneTest, TheReserveMaySayHowLongOutputsWait) {
  Open(id_, 10, absl::Minutes(30));
  board_.Publish(id_, report_);
  Advance(absl::Minutes(29));
  board_.Tick();
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 0);
  Advance(absl::Minutes(2));
  board_.Tick();
  EXPECT_EQ(log_.Count(Event::kShardAbandoned), 1);
}

}  // namespace
}  // namespace annulus
