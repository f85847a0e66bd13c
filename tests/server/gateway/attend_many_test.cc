#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "attention/error.h"
#include "base/steady_time.h"
#include "proto/convert.h"
#include "tests/server/gateway/gateway_case.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

using Act = FakeService::Act;
using Stream = grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>;

constexpr absl::Duration kLong = absl::Minutes(10);

// An AttendMany call of a caller.
struct ManyCall {
  explicit ManyCall(v1::Attention::Stub* stub) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream = stub->AttendMany(&context);
  }
  // The messages of one job's answer, up to its last: A where one says that the job was accepted, C
  // for each of its chunks, D where it is done, E with an error.
  std::string Answer() {
    std::vector<std::string> messages;
    v1::AttendResponse response;
    error = absl::OkStatus();
    while (stream->Read(&response)) {
      std::string& message = messages.emplace_back(response.has_accepted() ? "A" : "");
      message += response.chunks_size() > 0 ? "C" : "";
      if (response.has_done()) message += "D";
      if (response.has_error()) {
        message += "E";
        error = ErrorFromProto(response.error());
      }
      if (response.has_done() || response.has_error()) break;
    }
    return absl::StrJoin(messages, " ");
  }
  std::string AnswerTo(const v1::AttendRequest& job) {
    if (!stream->Write(job)) return "the call has ended";
    return Answer();
  }
  // What a call ends with that gets no more jobs, whose caller may not have said so.
  absl::Status End() {
    v1::AttendResponse response;
    EXPECT_FALSE(stream->Read(&response));
    return FromGrpcStatus(stream->Finish());
  }
  std::string reason() const { return DetailOf(error).reason; }
  std::string field() const {
    const ErrorDetail detail = DetailOf(error);
    return detail.fields.empty() ? "" : detail.fields[0].field;
  }

  grpc::ClientContext context;
  std::unique_ptr<Stream> stream;
  absl::Status error;  // Of the last job.
};

class AttendManyTest : public GatewayCallTest {
 protected:
  void StartWith(GatewayServiceOptions options) {
    options.small_answer_wait = kLong;
    Start(std::move(options));
  }
  static GatewayServiceOptions Patient() {
    GatewayServiceOptions options;
    options.first_message_wait = kLong;
    return options;
  }
  // Short jobs, of which each does the next of these.
  void Serve(std::vector<Act> acts, GatewayServiceOptions options = Patient()) {
    predicted_ = absl::Milliseconds(1);
    behind_ = std::make_unique<FakeService>(Script(std::move(acts)));
    StartWith(std::move(options));
  }
};

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

// A job that waits for room, say.
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
                    never = good, unknown = good, twice = good;
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
  // As many rows as have small queries and large outputs.
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

TEST_F(AttendManyTest, ACallWithoutAJobHasNoPlaceAndEndsWell) {
  GatewayServiceOptions options;
  options.first_message_wait = absl::Milliseconds(50);
  Serve({Act::kServe}, std::move(options));
  ManyCall call(stub_.get());
  EXPECT_TRUE(call.End().ok());
  EXPECT_TRUE(gateway_->WaitUntilIdle(SteadyNow()));
}

TEST_F(AttendManyTest, TheLongestWithoutAJobMakesRoom) {
  GatewayServiceOptions options = Patient();
  options.max_resting_calls = 1;
  Serve({Act::kServe}, std::move(options));
  ManyCall first(stub_.get());
  EXPECT_EQ(first.AnswerTo(Whole(ClientJob(20))), "ACD");
  ManyCall second(stub_.get());
  EXPECT_EQ(second.AnswerTo(Whole(ClientJob(20))), "ACD");
  EXPECT_TRUE(first.End().ok());
  EXPECT_EQ(second.AnswerTo(Whole(ClientJob(20))), "ACD");
}

TEST_F(AttendManyTest, WithoutAJobTheyEndWithTheService) {
  Serve({Act::kServe});
  ManyCall first(stub_.get());
  EXPECT_EQ(first.AnswerTo(Whole(ClientJob(20))), "ACD");
  gateway_->EndResting();
  EXPECT_TRUE(first.End().ok());
  ManyCall late(stub_.get());
  EXPECT_TRUE(late.End().ok());
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
