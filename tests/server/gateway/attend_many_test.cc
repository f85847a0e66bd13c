#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/steady_time.h"
#include "tests/server/gateway/many_call.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

TEST_F(AttendManyTest, ShortJobsAreAnsweredByAMessageEach) {
  Serve({Act::kServe});
  ManyCall call(stub_.get());
  for (const int rows : {20, 12, 33})
    EXPECT_EQ(call.AnswerTo(Whole(ClientJob(rows))), "ACD") << call.error;
  call.stream->WritesDone();
  EXPECT_TRUE(call.End().ok());
  EXPECT_EQ(behind_->run_jobs(), 3);
}

TEST_F(AttendManyTest, JobsThatComeEarlyWaitForTheirTurn) {
  Serve({Act::kServe});
  ManyCall call(stub_.get());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(call.stream->Write(Whole(ClientJob(20))));
  call.stream->WritesDone();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call.Answer(), "ACD");
  EXPECT_TRUE(call.End().ok());
}

TEST_F(AttendManyTest, LongJobsAreToldOfAsTheyGo) {
  StartWith(Patient());
  ManyCall call(stub_.get());
  for (int i = 0; i < 2; ++i) {
    const std::string answer = call.AnswerTo(Whole(ClientJob(20)));
    EXPECT_EQ(answer.substr(0, 4), "A C ") << answer;
    EXPECT_EQ(answer.back(), 'D') << answer;
  }
}

// For example, a job that waits for room.
TEST_F(AttendManyTest, AShortJobThatWaitsSaysThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({Act::kUploadsCut}));
  Start(Patient());
  ManyCall call(stub_.get());
  ASSERT_TRUE(call.stream->Write(Whole(ClientJob(20))));
  v1::AttendResponse response;
  ASSERT_TRUE(call.stream->Read(&response));
  EXPECT_TRUE(response.has_accepted());
  EXPECT_FALSE(response.has_done());
  behind_->SendOutputs();
  EXPECT_EQ(call.Answer().back(), 'D');
}

TEST_F(AttendManyTest, WhatIsWrongWithAJobIsItsAnswer) {
  Serve({Act::kServe});
  const v1::AttendRequest good = Whole(ClientJob(20));
  v1::AttendRequest heads = good, no_start = good, part = good, beyond = good, large = good,
                    never = good, no_time = good, unknown = good, twice = good;
  heads.mutable_start()->mutable_spec()->set_q_heads(-1);
  no_start.clear_start();
  part.mutable_chunks()->RemoveLast();
  beyond.mutable_chunks(2)->set_row_begin(1);
  large.mutable_chunks()->Clear();
  auto* sequence = large.mutable_start()->mutable_spec()->mutable_sequences(0);
  sequence->set_q_len(1 << 20);
  never.mutable_start()->mutable_timeout()->set_seconds(-1);
  unknown.mutable_start()
      ->GetReflection()
      ->MutableUnknownFields(unknown.mutable_start())
      ->AddVarint(99, 1);
  no_time.mutable_start()->mutable_timeout();
  *twice.add_chunks() = good.chunks(0);
  ManyCall call(stub_.get());
  const auto expect = [&](const v1::AttendRequest& job, const std::string& reason,
                          const std::string& field) {
    EXPECT_EQ(call.AnswerTo(job), "E");
    EXPECT_EQ(call.error.code(), absl::StatusCode::kInvalidArgument) << call.error;
    EXPECT_EQ(call.reason(), reason) << call.error;
    EXPECT_EQ(call.field(), field) << call.error;
  };
  expect(heads, "DIM_OVERFLOW", "start.spec.q_heads");
  expect(no_start, "STREAM_SEQUENCE", "start");
  expect(part, "STREAM_SEQUENCE", "chunks");
  expect(beyond, "CHUNK_OUT_OF_RANGE", "chunks[2].row_begin");
  expect(large, "STREAM_SEQUENCE", "chunks");
  expect(never, "INVALID_REQUEST", "start.timeout");
  expect(no_time, "INVALID_REQUEST", "start.timeout");
  expect(unknown, "UNKNOWN_FIELD", "start.99");
  expect(twice, "STREAM_SEQUENCE", "chunks");
  EXPECT_EQ(behind_->run_jobs(), 0);
  EXPECT_EQ(call.AnswerTo(good), "ACD");
}

TEST_F(AttendManyTest, OutputsOfMoreThanAMessageAreRefused) {
  Serve({Act::kServe});
  ClientJob job(30, 1);
  job.spec.head_dim_v = 256;
  job.spec.head_dim = 1;
  v1::AttendRequest request = Whole(job);
  // With this many rows, queries are small and outputs large.
  request.mutable_start()->mutable_spec()->mutable_sequences(0)->set_q_len(1000);
  request.clear_chunks();
  const auto add = [&](v1::TensorId id, int64_t rows, int64_t bytes) {
    v1::Chunk* chunk = request.add_chunks();
    chunk->set_tensor(id);
    chunk->set_row_count(rows);
    chunk->set_data(std::string(bytes, '\0'));
  };
  add(v1::TENSOR_ID_Q, 1000, 1000 * 2 * 4);
  add(v1::TENSOR_ID_K, 1, 2 * 4);
  add(v1::TENSOR_ID_V, 1, 2 * 256 * 4);
  ManyCall call(stub_.get());
  EXPECT_EQ(call.AnswerTo(request), "E");
  EXPECT_EQ(call.reason(), "LIMIT_EXCEEDED") << call.error;
  EXPECT_EQ(call.field(), "start.spec");
}

TEST_F(AttendManyTest, AJobThatFailsLeavesTheCallToTheNext) {
  Serve({Act::kGroupLost, Act::kQueueFull, Act::kServe});
  ManyCall call(stub_.get());
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "AE");
  EXPECT_EQ(call.reason(), "GROUP_LOST") << call.error;
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "E");
  EXPECT_EQ(call.reason(), "QUEUE_FULL") << call.error;
  EXPECT_EQ(DetailOf(call.error).retry_after, absl::Milliseconds(20));
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "ACD");
}

TEST_F(AttendManyTest, AJobHasTheTimeThatItAsksFor) {
  Serve({Act::kNeverPlace, Act::kServe});
  v1::AttendRequest request = Whole(ClientJob(20));
  request.mutable_start()->mutable_timeout()->set_nanos(50'000'000);
  ManyCall call(stub_.get());
  EXPECT_EQ(call.AnswerTo(request), "E");
  EXPECT_EQ(call.error.code(), absl::StatusCode::kDeadlineExceeded) << call.error;
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "ACD");
}

TEST_F(AttendManyTest, AJobAsksForAPlace) {
  GatewayServiceOptions options = Patient();
  options.max_attend_calls = 0;
  Serve({Act::kServe}, std::move(options));
  ManyCall call(stub_.get());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "E");
    EXPECT_EQ(call.reason(), "TOO_MANY_CALLS") << call.error;
  }
}

TEST_F(AttendManyTest, ACancelledCallEndsItsJob) {
  Serve({Act::kNeverPlace});
  ManyCall call(stub_.get());
  ASSERT_TRUE(call.stream->Write(Whole(ClientJob(20))));
  EXPECT_TRUE(AwaitACall());
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow() + absl::Milliseconds(50)));
  call.context.TryCancel();
  EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline()));
  EXPECT_EQ(call.End().code(), absl::StatusCode::kCancelled);
}

TEST_F(AttendManyTest, TheCallsDeadlineIsTheJobs) {
  Serve({Act::kNeverPlace});
  ManyCall call(stub_.get());
  call.context.TryCancel();
  ManyCall hurried(nullptr);
  hurried.context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  hurried.stream = stub_->AttendMany(&hurried.context);
  ASSERT_TRUE(hurried.stream->Write(Whole(ClientJob(20))));
  (void)hurried.Answer();
  EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline()));
}

TEST_F(AttendManyTest, EveryMessageOfAnAnswerSaysItsTag) {
  predicted_ = absl::Milliseconds(1);
  StartWith(Patient());
  ManyCall call(stub_.get());
  uint64_t tag = 7;
  v1::AttendRequest wrong = Whole(ClientJob(20));
  wrong.mutable_start()->mutable_spec()->set_q_heads(3);
  for (v1::AttendRequest job : {Whole(ClientJob(20)), wrong, Whole(ClientJob(1500))}) {
    job.mutable_start()->set_tag(++tag);
    ASSERT_TRUE(call.stream->Write(job));
    v1::AttendResponse response;
    do {
      ASSERT_TRUE(call.stream->Read(&response));
      EXPECT_EQ(response.tag(), tag);
    } while (!response.has_done() && !response.has_error());
  }
}

TEST_F(AttendManyTest, WhoDoesNotReadKeepsNobodyOutAndLosesTheCall) {
  GatewayServiceOptions options = Patient();
  options.max_attend_calls = 1;
  options.answer_patience = absl::Milliseconds(300);
  Serve({Act::kServe}, std::move(options));
  UnreadCall unread(port_, "/annulus.v1.Attention/AttendMany", Whole(ClientJob(20)));
  EXPECT_TRUE(AwaitACall());
  ManyCall call(stub_.get());
  const absl::Time deadline = Deadline();
  std::string answer;
  do {
    answer = call.AnswerTo(Whole(ClientJob(20)));
  } while (call.reason() == "TOO_MANY_CALLS" && SteadyNow() < deadline);
  EXPECT_EQ(answer, "ACD");
  EXPECT_TRUE(unread.EndsWithin(absl::Seconds(20)));
  EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline()));
}

}  // namespace
}  // namespace annulus
