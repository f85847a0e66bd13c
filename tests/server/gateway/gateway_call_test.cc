#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "annulus/v1/attention.grpc.pb.h"
#include "attention/error.h"
#include "base/steady_time.h"
#include "client/exchange_stream.h"
#include "client/run_job_call.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/convert.h"
#include "proto/status.h"
#include "server/gateway/attention_service.h"
#include "server/gateway/inline_job.h"
#include "server/gateway/merge_call.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

// A gateway in front of the coordinator and the workers of clients' tests.
class GatewayCallTest : public testing::Test {
 protected:
  void Start(GatewayServiceOptions options) {
    const auto coordinator =
        grpc::CreateChannel(behind_->address(), grpc::InsecureChannelCredentials());
    options.run_job = Predicting(predicted_, RemoteRunJob(coordinator, {}));
    options.server_info = [](const ServerInfoReply& reply) {
      v1::ServerInfo info;
      info.set_version("1.2.3");
      reply(info);
    };
    options.worker_channel = [coordinator](const std::string&) { return coordinator; };
    gateway_ = std::make_unique<AttentionService>(std::move(options));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(gateway_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // No larger windows than at first.
    stub_ = v1::Attention::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port_), grpc::InsecureChannelCredentials(), arguments));
    call_ = stub_->Attend(&context_);
  }
  ~GatewayCallTest() override {
    context_.TryCancel();
    call_.reset();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  // Whose plans say so.
  static RunJobStarter Predicting(absl::Duration time, RunJobStarter run_job) {
    return
        [time, run_job = std::move(run_job)](const v1::RunJobRequest& request, absl::Time deadline,
                                             RunJobCall::Handlers handlers) {
          handlers.on_event = [time, next = handlers.on_event](v1::JobEvent event) {
            if (event.has_placed())
              *event.mutable_placed()->mutable_predicted_time() = DurationToProto(time);
            next(std::move(event));
          };
          return run_job(request, deadline, std::move(handlers));
        };
  }
  static absl::Time Deadline() { return SteadyNow() + absl::Seconds(30); }
  // Whether some call is at work at last.
  bool AwaitACall() {
    const absl::Time deadline = Deadline();
    while (gateway_->WaitUntilIdle(SteadyNow())) {
      if (SteadyNow() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  static v1::AttendRequest Whole(const ClientJob& job) {
    v1::AttendRequest request;
    *request.mutable_start()->mutable_spec() = SpecToProto(job.spec);
    const auto add = [&](v1::TensorId id, int64_t rows, const std::vector<float>& values) {
      v1::Chunk* chunk = request.add_chunks();
      chunk->set_tensor(id);
      chunk->set_row_count(rows);
      const auto bytes = ClientJob::Bytes(values);
      chunk->set_data(bytes.data(), bytes.size());
    };
    add(v1::TENSOR_ID_K, job.spec.kv_rows(), job.kv);
    add(v1::TENSOR_ID_V, job.spec.kv_rows(), job.kv);
    add(v1::TENSOR_ID_Q, job.spec.q_rows(), job.q);
    return request;
  }
  // Sends a whole job and takes nothing of what comes.
  void Send(const ClientJob& job) {
    ASSERT_TRUE(call_->Write(Whole(job)));
    ASSERT_TRUE(call_->WritesDone());
  }
  // At fault in a call of these messages, by its details and its words.
  std::string FieldOf(const std::vector<v1::AttendRequest>& messages) {
    grpc::ClientContext context;
    const auto call = stub_->Attend(&context);
    for (const v1::AttendRequest& message : messages) call->Write(message);
    v1::AttendResponse response;
    while (call->Read(&response)) {
    }
    const absl::Status status = FromGrpcStatus(call->Finish());
    const ErrorDetail detail = DetailOf(status);
    const std::string field = detail.fields.empty() ? "" : detail.fields[0].field;
    EXPECT_EQ(status.message().find(field + ": "), 0u) << status;
    return field;
  }
  absl::Status End() {
    v1::AttendResponse response;
    while (call_->Read(&response)) {
    }
    return FromGrpcStatus(call_->Finish());
  }

  absl::Duration predicted_ = absl::Seconds(1);
  std::unique_ptr<FakeService> behind_ =
      std::make_unique<FakeService>(Script({FakeService::Act::kServe}));
  std::unique_ptr<AttentionService> gateway_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::unique_ptr<v1::Attention::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> call_;
};

TEST_F(GatewayCallTest, WhoSendsNoStartHasNoPlaceAndIsSentAway) {
  GatewayServiceOptions options;
  options.max_attend_calls = 0;
  options.first_message_wait = absl::Milliseconds(50);
  Start(std::move(options));
  const absl::Status status = End();
  EXPECT_EQ(DetailOf(status).reason, "STREAM_SEQUENCE") << status;
}

TEST_F(GatewayCallTest, AStartAsksForAPlace) {
  GatewayServiceOptions options;
  options.max_attend_calls = 0;
  options.first_message_wait = kLong;
  Start(std::move(options));
  Send(ClientJob(20));
  const absl::Status status = End();
  EXPECT_EQ(DetailOf(status).reason, "TOO_MANY_CALLS") << status;
}

TEST_F(GatewayCallTest, WaitsForACallAtWork) {
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kNeverPlace}));
  Start({});
  Send(ClientJob(20));
  EXPECT_TRUE(AwaitACall());
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow() + absl::Milliseconds(50)));
  context_.TryCancel();
  EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline()));
}

// 1 MiB of outputs, where a caller's window is 64 KiB.
TEST_F(GatewayCallTest, WhoDoesNotReadLosesItsCall) {
  GatewayServiceOptions options;
  options.max_attend_calls = 1;
  options.max_timeout = absl::Seconds(5);
  options.end_patience = absl::Milliseconds(50);
  Start(std::move(options));
  Send(ClientJob(16000));
  EXPECT_TRUE(AwaitACall());
  EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline()));
  EXPECT_FALSE(End().ok());
}

// A message is written as A, where it says that the job was accepted, C for each of its chunks, and
// D, where it says that it is done.
class AnswerTest : public GatewayCallTest {
 protected:
  std::vector<std::string> Answer(absl::Status* status) {
    std::vector<std::string> messages;
    v1::AttendResponse response;
    while (call_->Read(&response)) {
      std::string& message = messages.emplace_back(response.has_accepted() ? "A" : "");
      message += std::string(response.chunks_size(), 'C') + (response.has_done() ? "D" : "");
    }
    *status = FromGrpcStatus(call_->Finish());
    return messages;
  }
};

TEST_F(AnswerTest, OfAShortJobThatCameWholeIsOneMessage) {
  predicted_ = absl::Milliseconds(1);
  Start({});
  const ClientJob job(20);
  Send(job);
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(messages.size(), 1u) << absl::StrJoin(messages, " ");
  EXPECT_EQ(messages[0].front(), 'A');
  EXPECT_EQ(messages[0].back(), 'D');
  EXPECT_GT(messages[0].size(), 2u);
}

TEST_F(AnswerTest, OfALongJobComesAsItIsReady) {
  Start({});
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_GT(messages.size(), 2u);
  EXPECT_EQ(messages.front(), "A");
  EXPECT_EQ(messages.back(), "D");
}

// The caller may be waiting for the word that the job was accepted.
TEST_F(AnswerTest, OfAJobWhoseInputsFollowBeginsWithTheWordThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  Start({});
  v1::AttendRequest start = Whole(ClientJob(20)), rest;
  rest.mutable_chunks()->Swap(start.mutable_chunks());
  start.add_chunks()->Swap(rest.mutable_chunks(0));
  rest.mutable_chunks()->DeleteSubrange(0, 1);
  ASSERT_TRUE(call_->Write(start));
  v1::AttendResponse response;
  ASSERT_TRUE(call_->Read(&response));
  EXPECT_TRUE(response.has_accepted());
  ASSERT_TRUE(call_->Write(rest));
  ASSERT_TRUE(call_->WritesDone());
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_FALSE(messages.empty());
  EXPECT_EQ(messages.back(), "D");
}

// More than a message takes: what waits for the end goes out before it.
TEST_F(AnswerTest, OfMoreChunksThanAMessageTakesIsSeveral) {
  predicted_ = absl::Milliseconds(1);
  Start({});
  Send(ClientJob(1500));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_GT(messages.size(), 1u);
  EXPECT_EQ(messages.front().front(), 'A');
  EXPECT_EQ(messages.back().back(), 'D');
  std::string all = absl::StrJoin(messages, "");
  EXPECT_EQ(std::count(all.begin(), all.end(), 'A'), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), 'D'), 1);
}

TEST_F(AnswerTest, OfAShortJobThatFailsSaysWhichJobItWas) {
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kGroupLost}));
  Start({});
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST") << status;
  EXPECT_EQ(messages, std::vector<std::string>{"A"});
}

TEST_F(GatewayCallTest, ErrorsNameFieldsOfTheRequest) {
  Start({});
  const ClientJob job(20);
  v1::AttendRequest good;
  *good.mutable_start()->mutable_spec() = SpecToProto(job.spec);
  v1::AttendRequest heads = good;
  heads.mutable_start()->mutable_spec()->set_q_heads(-1);
  v1::AttendRequest chunks;
  for (int row : {0, 1}) {
    v1::Chunk* chunk = chunks.add_chunks();
    chunk->set_tensor(v1::TENSOR_ID_Q);
    chunk->set_row_begin(row);
    chunk->set_row_count(1);
    chunk->set_data(ClientJob::Bytes(job.q).data(), sizeof(float) * job.q.size() / 20);
  }
  v1::AttendRequest negative = chunks, beyond = chunks, output = chunks;
  negative.mutable_chunks(1)->set_row_begin(-1);
  beyond.mutable_chunks(1)->set_row_begin(20);
  output.mutable_chunks(0)->set_tensor(v1::TENSOR_ID_OUT);
  v1::AttendRequest at_once = good;
  *at_once.mutable_chunks() = beyond.chunks();
  EXPECT_EQ(FieldOf({chunks}), "start");
  EXPECT_EQ(FieldOf({good, good}), "start");
  EXPECT_EQ(FieldOf({heads}), "start.spec.q_heads");
  EXPECT_EQ(FieldOf({good, v1::AttendRequest()}), "chunks");
  EXPECT_EQ(FieldOf({good, negative}), "chunks[1].row_begin");
  EXPECT_EQ(FieldOf({good, beyond}), "chunks[1].row_begin");
  EXPECT_EQ(FieldOf({good, output}), "chunks[0].tensor");
  EXPECT_EQ(FieldOf({at_once}), "chunks[1].row_begin");
}

// Calls whose callers do not read their answers.
class UnreadAnswerTest : public GatewayCallTest {
 protected:
  // With a place for one call, and memory for one such.
  void StartForOne(int64_t bytes, absl::Duration patience) {
    GatewayServiceOptions options;
    options.max_attend_calls = 1;
    options.max_inline_bytes = bytes + MergeBytes(Merge()) / 2;
    options.answer_patience = patience;
    // A shard that comes by itself holds its call until its outputs have left.
    options.exchanges = std::make_shared<ExchangePool>();
    Start(std::move(options));
  }
  static v1::MergePartialsRequest Merge() {
    v1::MergePartialsRequest request;
    v1::Partial* partial = request.add_partials();
    for (int64_t size : {1, 1, 4}) partial->mutable_out()->add_shape(size);
    for (int64_t size : {1, 1}) partial->mutable_lse()->add_shape(size);
    for (float number : {1, 2, 3, 4}) partial->mutable_out()->add_values(number);
    partial->mutable_lse()->add_values(0);
    partial->set_lse_base(v1::Outputs::LSE_BASE_E);
    partial->set_lse_layout(v1::Partial::LSE_LAYOUT_ROWS_HEADS);
    return request;
  }
  static v1::AttendInlineRequest Inline() {
    v1::AttendInlineRequest request;
    *request.mutable_spec() = SpecToProto(ClientJob(2).spec);
    request.mutable_synthetic()->set_seed(1);
    return request;
  }
  std::unique_ptr<UnreadCall> Unread(const std::string& method,
                                     const google::protobuf::MessageLite& request) {
    return std::make_unique<UnreadCall>(port_, "/annulus.v1.Attention/" + method, request);
  }
  static std::unique_ptr<FakeService> WholeShards(int ranks) {
    FakeService::Options options;
    options.world = ranks;
    options.stripe = 7;
    options.whole_shards = true;
    return std::make_unique<FakeService>(std::move(options));
  }
  // Whether a merge finds a place, and memory, at last.
  bool MergesAtLast() {
    absl::Status status;
    const absl::Time deadline = Deadline();
    do {
      grpc::ClientContext context;
      v1::Partial merged;
      status = FromGrpcStatus(stub_->MergePartials(&context, Merge(), &merged));
    } while (status.code() == absl::StatusCode::kResourceExhausted && SteadyNow() < deadline);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok();
  }
};

TEST_F(UnreadAnswerTest, AnUnreadMergeKeepsNobodyOut) {
  StartForOne(MergeBytes(Merge()), kLong);
  const auto call = Unread("MergePartials", Merge());
  EXPECT_TRUE(AwaitACall());
  EXPECT_TRUE(MergesAtLast());
  EXPECT_FALSE(call->EndsWithin(absl::ZeroDuration()));
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow())) << "it may still be read";
}

TEST_F(UnreadAnswerTest, AnUnreadAttendInlineKeepsNobodyOut) {
  StartForOne(*InlineBytes(Inline(), ClientJob(2).spec), kLong);
  const auto call = Unread("AttendInline", Inline());
  EXPECT_TRUE(AwaitACall());
  EXPECT_TRUE(MergesAtLast());
  EXPECT_FALSE(call->EndsWithin(absl::ZeroDuration()));
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow())) << "it may still be read";
}

TEST_F(UnreadAnswerTest, AnUnreadAttendKeepsNobodyOut) {
  behind_ = WholeShards(3);
  StartForOne(MergeBytes(Merge()), kLong);
  const auto call = Unread("Attend", Whole(ClientJob(20)));
  EXPECT_TRUE(AwaitACall());
  EXPECT_TRUE(MergesAtLast());
  EXPECT_FALSE(call->EndsWithin(absl::ZeroDuration()));
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow())) << "it may still be read";
}

// 64 KiB in a second or more: here are 250 KiB, of which a caller's window takes 64.
TEST_F(UnreadAnswerTest, WhoReadsSlowlyHasAllOfAnAttend) {
  constexpr int kRanks = 16;
  behind_ = WholeShards(kRanks);
  StartForOne(MergeBytes(Merge()), absl::Milliseconds(1));
  Send(ClientJob(kRanks * 32 * 7));  // A shard is 64 chunks of 7 rows.
  EXPECT_TRUE(AwaitACall());
  EXPECT_TRUE(MergesAtLast());
  const absl::Status end = End();
  EXPECT_TRUE(end.ok()) << end;
}

TEST_F(UnreadAnswerTest, EndSoonAfterTheirAnswer) {
  behind_ = WholeShards(3);
  StartForOne(*InlineBytes(Inline(), ClientJob(2).spec), absl::Milliseconds(50));
  for (const auto& [method, request] :
       std::vector<std::pair<std::string, std::shared_ptr<google::protobuf::MessageLite>>>{
           {"GetServerInfo", std::make_shared<v1::GetServerInfoRequest>()},
           {"MergePartials", std::make_shared<v1::MergePartialsRequest>(Merge())},
           {"AttendInline", std::make_shared<v1::AttendInlineRequest>(Inline())},
           {"Attend", std::make_shared<v1::AttendRequest>(Whole(ClientJob(20)))}}) {
    EXPECT_TRUE(Unread(method, *request)->EndsWithin(absl::Seconds(20))) << method;
    EXPECT_TRUE(gateway_->WaitUntilIdle(Deadline())) << method;
  }
}

}  // namespace
}  // namespace annulus
