#include <malloc.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/steady_time.h"
#include "client/transport/stream_pool.h"
#include "gtest/gtest.h"
#include "proto/rpc/slow_reader_guard.h"
#include "proto/rpc/slow_reader_registry.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"
#include "server/gateway/inline_job.h"
#include "server/gateway/merge_call.h"
#include "tests/client/client_jobs.h"
#include "tests/client/fake_service.h"
#include "tests/server/gateway/gateway_case.h"
#include "tests/server/raw_call.h"
#include "tests/server/unread_call.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

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

TEST_F(GatewayCallTest, AJobHasTheTimeThatItsStartSays) {
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kNeverPlace}));
  Start({});
  v1::AttendRequest request = Whole(ClientJob(20));
  request.mutable_start()->mutable_timeout()->set_nanos(50'000'000);
  ASSERT_TRUE(call_->Write(request));
  const absl::Status status = End();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(GatewayCallTest, AStartIsNotKeptAsItCame) {
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kNeverPlace}));
  Start({});
  v1::AttendRequest request;
  *request.mutable_start()->mutable_spec() = SpecToProto(ClientJob(20).spec);
  WatchedMessage start(request);
  RawCall call(server_->InProcessChannel({}), "/annulus.v1.Attention/Attend");
  ASSERT_TRUE(call.Write(start.Take()));
  EXPECT_TRUE(start.AwaitGone());
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow())) << "its job waits";
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

// 1 MiB of outputs, while the caller's window is 64 KiB.
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
  // With a place for one call, and memory for one.
  void StartForOne(int64_t bytes, absl::Duration patience) {
    GatewayServiceOptions options;
    options.max_attend_calls = 1;
    options.max_inline_bytes = bytes + MergeBytes(Merge()) / 2;
    options.answer_patience = patience;
    // A shard that is exchanged occupies its call until its outputs have left.
    options.exchanges = std::make_shared<StreamPool>(StreamPool::Options());
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
  // Waits until a merge finds a place and memory.
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

// The count of mallinfo2; 0 under sanitizers, which have their own allocator.
size_t MemoryInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

bool Becomes(const std::function<bool()>& condition) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  while (!condition() && SteadyNow() < deadline) std::this_thread::yield();
  return condition();
}

// The largest number of ranges of a mask, for each of two heads. Parsed, each takes fifty times its
// size on the wire.
void AddManyRanges(v1::AttentionSpec* spec) {
  for (int head = 0; head < 2; ++head) {
    v1::Mask& mask = *spec->add_masks();
    if (head > 0) mask.add_query_heads(head);
    for (int i = 0; i < 4096; ++i) mask.add_ranges();
  }
}

TEST_F(UnreadAnswerTest, AnUnreadCallKeepsNothingOfItsRequest) {
  constexpr size_t kCalls = 10, kLittle = 2 << 20;
  v1::AttendInlineRequest inlined = Inline();
  AddManyRanges(inlined.mutable_spec());
  v1::AttendRequest attend = Whole(ClientJob(20));
  AddManyRanges(attend.mutable_start()->mutable_spec());
  ASSERT_GT(kCalls * inlined.SpaceUsedLong(), 2 * kLittle);
  behind_ = WholeShards(3);
  StartForOne(*InlineBytes(inlined, ClientJob(2).spec), kLong);
  const SlowReaderRegistry& unread = SlowReaderRegistry::Get();
  for (const auto& [method, request] :
       std::vector<std::pair<std::string, const google::protobuf::MessageLite*>>{
           {"AttendInline", &inlined}, {"Attend", &attend}}) {
    std::vector<std::unique_ptr<UnreadCall>> calls;
    size_t before = 0;
    while (calls.size() <= kCalls) {
      calls.push_back(Unread(method, *request));
      ASSERT_TRUE(Becomes([&] { return unread.calls() == calls.size(); })) << method;
      if (calls.size() == 1) before = MemoryInUse();  // Caches are warm now.
    }
    EXPECT_TRUE(Becomes([&] { return MemoryInUse() < before + kLittle; }))
        << method << " " << MemoryInUse() - before;
    calls.clear();
    ASSERT_TRUE(Becomes([&] { return unread.calls() == 0; })) << method;
  }
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

// 64 KiB in a second or more, of 250 KiB, of which the caller's window holds 64.
TEST_F(UnreadAnswerTest, WhoReadsSlowlyHasAllOfAnAttend) {
  constexpr int kRanks = 16;
  behind_ = WholeShards(kRanks);
  StartForOne(MergeBytes(Merge()), absl::Milliseconds(1));
  Send(ClientJob(kRanks * 32 * 7));  // A shard has 64 chunks of 7 rows.
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
