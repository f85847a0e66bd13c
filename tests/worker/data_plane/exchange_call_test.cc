// ExchangeShards.
#include "worker/data_plane/exchange_call.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/worker/data_plane/data_plane_harness.h"
#include "worker/agent/agent_values.h"

namespace annulus {
namespace {

using Event = EventLog::Event;

class ExchangeTest : public DataPlaneTest {
 protected:
  ~ExchangeTest() override {
    if (call_ != nullptr) call_->OnDone();
    EXPECT_EQ(board_.calls(), 0u);
  }
  std::shared_ptr<ExchangeCall> Start() {
    call_ = std::make_shared<ExchangeCall>(&board_, &copies_, &stream_);
    call_->Start();
    return call_;
  }
  // The ticket of `id` and all of its inputs.
  PutMessage Whole(const ShardId& id, int64_t rows) {
    PutMessage all;
    all.ticket = Ticket(id, rows);
    auto storage = std::make_shared<std::vector<PutMessage>>();
    for (TensorId tensor : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      storage->push_back(Chunk(tensor, 0, rows));
      all.parts.push_back(storage->back().parts[0]);
    }
    all.storage = storage;
    return all;
  }
  Outcome& outcome() { return stream_.outcome; }
  // A call that has sent all of `id_` and whose first message of outputs is being written.
  std::shared_ptr<ExchangeCall> StartAndServe() {
    Open(id_, 10);
    auto call = Start();
    call->OnMessage(Whole(id_, 10));
    board_.Publish(id_, report_);
    EXPECT_TRUE(outcome().AwaitMessages(1));
    return call;
  }
  // A call that has sent all of `id_` except its values, and reads.
  std::shared_ptr<ExchangeCall> StartWithoutValues() {
    Open(id_, 10, absl::Minutes(10));
    auto call = Start();
    PutMessage some = Whole(id_, 10);
    some.parts.pop_back();
    call->OnMessage(std::move(some));
    EXPECT_TRUE(outcome().AwaitRead(2));
    return call;
  }
  // Another call sends the values, and the outputs are published, while this call reads.
  void PutValuesAndPublish() {
    PutStream other;
    auto put = Put(&other, Ticket(id_, 10));
    ASSERT_TRUE(other.outcome.AwaitRead(2));
    put->OnMessage(Chunk(TensorId::kV, 0, 10));
    ASSERT_TRUE(other.outcome.AwaitRead(3));
    put->OnHalfClose();
    EXPECT_TRUE(other.outcome.AwaitEnd().ok());
    board_.Publish(id_, report_);
  }

  ExchangeTestStream stream_;
  std::shared_ptr<ExchangeCall> call_;
};

TEST_F(ExchangeTest, ShardsFollowOneAnother) {
  auto call = Start();
  for (int n = 0; n < 3; ++n) {
    const ShardId id{"job", n + 1, 0};
    ASSERT_TRUE(outcome().AwaitRead(n + 1));
    call->OnMessage(Whole(id, 10));
    Open(id, 10);  // Its Reserve comes later.
    ASSERT_TRUE(log_.Wait(Event::kShardComplete).has_value());
    EXPECT_EQ(outcome().Get().messages.size(), static_cast<size_t>(n));
    // The next message is not read before this one is written.
    EXPECT_EQ(outcome().Get().reads, n + 1);
    v1::ShardReport report;
    report.set_bytes_sent(n + 100);
    board_.Publish(id, report);
    ASSERT_TRUE(outcome().AwaitMessages(n + 1));
    EXPECT_EQ(outcome().Get().report.bytes_sent(), n + 100);
    EXPECT_EQ(log_.Count(Event::kOutputDrained), n);
    call->OnWritten(true);
    EXPECT_EQ(log_.Count(Event::kOutputDrained), n + 1);
    board_.Close(id, absl::AbortedError("the job has ended"));
  }
  ASSERT_TRUE(outcome().AwaitRead(4));
  EXPECT_FALSE(outcome().ended());
  call->OnHalfClose();
  EXPECT_TRUE(outcome().AwaitEnd().ok());
}

TEST_F(ExchangeTest, OutputsOfSeveralMessagesAndInputsToo) {
  const int64_t rows = 40000;  // 1.28 MB of output and 320 kB of LSE: two messages.
  Open(id_, rows);
  auto call = Start();
  PutMessage ticket;
  ticket.ticket = Ticket(id_, rows);
  call->OnMessage(std::move(ticket));
  int reads = 2;
  for (TensorId tensor : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
    for (int64_t half : {int64_t{0}, rows / 2}) {
      ASSERT_TRUE(outcome().AwaitRead(reads++));
      call->OnMessage(Chunk(tensor, half, rows / 2));
    }
  }
  ASSERT_TRUE(log_.Wait(Event::kShardComplete).has_value());
  board_.Publish(id_, report_);
  ASSERT_TRUE(outcome().AwaitMessages(1));
  EXPECT_EQ(outcome().Get().report.bytes_sent(), 0);
  call->OnWritten(true);
  ASSERT_TRUE(outcome().AwaitMessages(2));
  EXPECT_EQ(outcome().Get().report.bytes_sent(), 321);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
  call->OnWritten(true);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
}

TEST_F(ExchangeTest, AnErrorOfEitherDirectionEndsTheCall) {
  Open(id_, 10);
  auto call = Start();
  PutMessage forged = Whole(id_, 10);
  forged.ticket.back() ^= 1;
  call->OnMessage(std::move(forged));
  EXPECT_EQ(outcome().AwaitReason(), "BAD_TICKET");
}

TEST_F(ExchangeTest, AWrongChunkEndsTheCall) {
  Open(id_, 10);
  auto call = Start();
  PutMessage whole = Whole(id_, 10);
  whole.parts[1].header.row_begin = 5;
  call->OnMessage(std::move(whole));
  EXPECT_EQ(outcome().AwaitReason(), "CHUNK_OUT_OF_RANGE");
  EXPECT_EQ(log_.Count(Event::kShardComplete), 0);
}

TEST_F(ExchangeTest, RowsThatAreMissingAtTheEndAreNamed) {
  auto call = StartWithoutValues();
  call->OnHalfClose();
  EXPECT_EQ(outcome().AwaitReason(), "MISSING_ROWS");
}

TEST_F(ExchangeTest, ACloseThatIsReadAfterTheOutputsEndsTheCallWell) {
  auto call = StartAndServe();
  EXPECT_FALSE(outcome().ended());
  call->OnWritten(true);
  ASSERT_TRUE(outcome().AwaitRead(2));
  call->OnHalfClose();
  EXPECT_TRUE(outcome().AwaitEnd().ok());
}

TEST_F(ExchangeTest, OutputsOfWhatAnotherCallHasBroughtWaitForTheSameInputs) {
  auto call = StartWithoutValues();
  PutValuesAndPublish();
  EXPECT_EQ(outcome().Get().messages.size(), 0u);
  call->OnMessage(Chunk(TensorId::kV, 0, 10));
  ASSERT_TRUE(outcome().AwaitMessages(1));
  EXPECT_EQ(outcome().Get().report.bytes_sent(), 321);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
  call->OnWritten(true);
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
  EXPECT_EQ(outcome().Get().reads, 3);
  const ShardId next{"job", 2, 0};
  Open(next, 10);
  call->OnMessage(Whole(next, 10));
  board_.Publish(next, report_);
  EXPECT_TRUE(outcome().AwaitMessages(2));
}

// The upload delays the outputs: until it is done, the call does not wait for the client to read.
TEST_F(ExchangeTest, OutputsThatWaitForInputsAreNoStalledDownload) {
  auto call = StartWithoutValues();
  PutValuesAndPublish();
  Advance(absl::Seconds(119));
  board_.Tick();
  call->OnMessage(Chunk(TensorId::kV, 0, 10));
  ASSERT_TRUE(outcome().AwaitMessages(1));
  Advance(absl::Seconds(119));
  board_.Tick();
  EXPECT_FALSE(outcome().Get().cancelled);
  Advance(absl::Seconds(1));
  board_.Tick();
  EXPECT_TRUE(outcome().Get().cancelled) << "now it is";
  call->OnCancelled();
}

TEST_F(ExchangeTest, OutputsOfOtherInputsAreNotGiven) {
  auto call = StartWithoutValues();
  PutValuesAndPublish();
  call->OnMessage(Chunk(TensorId::kV, 0, 10, 'y'));
  EXPECT_EQ(outcome().AwaitReason(), "CHUNK_OVERLAP");
  EXPECT_EQ(outcome().Get().messages.size(), 0u);
}

TEST_F(ExchangeTest, AJobThatEndsEndsACallThatHasNotBroughtAll) {
  auto call = StartWithoutValues();
  PutValuesAndPublish();
  board_.Close(id_, JobEndedError("the job has ended"));
  EXPECT_EQ(outcome().AwaitReason(), "JOB_ENDED");
  EXPECT_FALSE(outcome().Get().cancelled) << "nothing was being written";
}

TEST_F(ExchangeTest, ACallThatIsKeptTooLongEndsWellAndOneThatNeverBeganDoesNot) {
  auto call = StartAndServe();
  call->OnWritten(true);
  ASSERT_TRUE(outcome().AwaitRead(2));
  ExchangeTestStream silent;
  auto never = std::make_shared<ExchangeCall>(&board_, &copies_, &silent);
  never->Start();
  Advance(absl::Seconds(9));
  board_.Tick();
  EXPECT_FALSE(outcome().ended());
  Advance(absl::Seconds(2));
  board_.Tick();
  EXPECT_TRUE(outcome().AwaitEnd().ok());
  EXPECT_EQ(silent.outcome.AwaitReason(), "UPLOAD_STALLED");
  never->OnDone();
}

TEST_F(ExchangeTest, ChunksWithoutATicketAreNamed) {
  auto call = Start();
  PutMessage chunks = Whole(id_, 10);
  chunks.ticket.clear();
  call->OnMessage(std::move(chunks));
  EXPECT_EQ(outcome().AwaitReason(), "STREAM_SEQUENCE");
}

// The message arrives on another thread while the requesting thread still starts the shard.
TEST_F(ExchangeTest, AMessageMayComeAsSoonAsItIsAskedFor) {
  auto call = StartAndServe();
  const ShardId next{"job", 2, 0};
  Open(next, 10);
  std::thread client;
  stream_.on_read = [&] {
    if (!client.joinable()) client = std::thread([&] { call->OnMessage(Whole(next, 10)); });
  };
  call->OnWritten(true);
  client.join();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(log_.Wait(Event::kShardComplete).has_value());
  board_.Publish(next, report_);
  ASSERT_TRUE(outcome().AwaitMessages(2));
  client = std::thread();
  stream_.on_read = [&] { client = std::thread([&] { call->OnHalfClose(); }); };
  call->OnWritten(true);
  client.join();
  EXPECT_TRUE(outcome().AwaitEnd().ok());
  EXPECT_EQ(outcome().Get().reads, 3);
}

TEST_F(ExchangeTest, IdleCallsLeaveRoomForOthers) {
  std::vector<std::unique_ptr<PutStream>> streams;
  std::vector<std::shared_ptr<PutCall>> others;
  for (int i = 0; i < 5; ++i) {  // 5 of 8 calls.
    streams.push_back(std::make_unique<PutStream>());
    others.push_back(std::make_shared<PutCall>(&board_, &copies_, streams.back().get()));
    others.back()->Start();
  }
  auto call = StartAndServe();
  call->OnWritten(true);
  EXPECT_TRUE(outcome().AwaitEnd().ok());
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 1);
  for (auto& other : others) other->OnCancelled();
}

TEST_F(ExchangeTest, WhatAClientCutShortIsNotDelivered) {
  auto call = StartAndServe();
  call->OnCancelled();
  call->OnWritten(true);  // Its bytes had been sent already.
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
}

TEST_F(ExchangeTest, AReaderThatNeverReadsIsCut) {
  auto call = StartAndServe();
  Advance(absl::Minutes(2));
  board_.Tick();
  EXPECT_TRUE(outcome().Get().cancelled);
  call->OnCancelled();
  EXPECT_EQ(outcome().AwaitEnd().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(log_.Wait(Event::kShardAbandoned).has_value());
}

TEST_F(ExchangeTest, AJobThatEndsEndsItsCall) {
  Open(id_, 10);
  auto call = Start();
  call->OnMessage(Whole(id_, 10));
  ASSERT_TRUE(log_.Wait(Event::kShardComplete).has_value());
  board_.Close(id_, JobEndedError("the job has ended"));
  EXPECT_EQ(outcome().AwaitReason(), "JOB_ENDED");
}

TEST_F(ExchangeTest, AJobThatEndsLeavesItsLastMessageToTheReader) {
  auto call = StartAndServe();
  board_.Close(id_, JobEndedError("its outputs are delivered"));
  EXPECT_FALSE(outcome().Get().cancelled);
  EXPECT_EQ(outcome().Get().unread, 400);
  EXPECT_FALSE(outcome().ended());
  call->OnWritten(true);
  EXPECT_TRUE(outcome().AwaitEnd().ok()) << "what would cut it may come at any time";
}

TEST_F(ExchangeTest, AClientThatGoesDrainsNothing) {
  auto call = StartAndServe();
  call->OnWritten(false);
  EXPECT_EQ(outcome().AwaitEnd().code(), absl::StatusCode::kCancelled);
  call->OnDone();
  EXPECT_EQ(log_.Count(Event::kOutputDrained), 0);
}

}  // namespace
}  // namespace annulus
