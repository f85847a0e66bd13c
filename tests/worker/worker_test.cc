// A whole worker over real streams. The test plays coordinator and client.
#include "worker/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "annulus/v1/data_plane.grpc.pb.h"
#include "base/error.h"
#include "base/mutex.h"
#include "proto/wire/convert.h"
#include "proto/wire/crc32c.h"
#include "proto/wire/status.h"
#include "proto/wire/ticket.h"
#include "tests/worker/agent/fake_coordinator.h"
#include "tests/worker/executor/probe_kernel.h"
#include "tests/worker/small_worker.h"
#include "worker/backend/backend.h"

namespace annulus {
namespace {

using Command = control::v1::WorkerCommand;
using Event = control::v1::WorkerEvent;

constexpr int64_t kRows = 6;
constexpr int kDim = 4;
constexpr int64_t kStagingBytes = 4 * kRows * kDim * 4 + kRows * 4;  // Q, K, V, output; LSE.

class WorkerTest : public testing::Test {
 protected:
  using Change = std::function<void(WorkerOptions*)>;

  explicit WorkerTest(const Change& change = [](WorkerOptions*) {}) {
    WorkerOptions options = SmallWorkerOptions(coordinator_.address());
    options.staging_bytes = 2 * kStagingBytes;
    options.drain_timeout = absl::Seconds(20);
    options.exit = [this](int code) { exit_code_ = code; };
    change(&options);
    worker_ = *Worker::Start(options);
    Registered();
    stub_ = v1::DataPlane::NewStub(
        grpc::CreateChannel(worker_->data_endpoint(), grpc::InsecureChannelCredentials()));
  }

  void Registered() {
    const auto event = coordinator_.log.Wait(Event::kRegister);
    ASSERT_TRUE(event.has_value());
    self_ = event->register_();
  }
  // One sequence of kRows query and key rows, one head of kDim fp32.
  void Reserve(const std::string& job, absl::Duration download_time = absl::ZeroDuration()) {
    Command command;
    control::v1::Reserve& reserve = *command.mutable_reserve();
    if (download_time > absl::ZeroDuration()) {
      *reserve.mutable_download_time() = DurationToProto(download_time);
    }
    reserve.mutable_shard()->set_job_id(job);
    reserve.mutable_shard()->set_attempt(1);
    AttentionSpec spec;
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 1;
    spec.head_dim = kDim;
    spec.sequences.resize(1);
    spec.sequences[0].q_len = spec.sequences[0].kv_len = kRows;
    *reserve.mutable_spec() = SpecToProto(spec);
    Execution execution;
    execution.strategy = Strategy::kRingPassKv;
    execution.layout = Layout::kContiguous;
    execution.world_size = 1;
    *reserve.mutable_execution() = ExecutionToProto(execution);
    reserve.set_granule(1);
    reserve.set_principal("alice");
    reserve.set_solo(true);
    reserve.set_staging_bytes(kStagingBytes);
    reserve.mutable_upload_time()->set_seconds(60);
    coordinator_.Order(command);
  }
  std::string Ticket(const std::string& job) {
    return SignTicket(self_.ticket_key(), {job, 1, 0, self_.incarnation(), "alice",
                                           3 * kRows * kDim * 4, absl::Now() + absl::Minutes(1)});
  }
  // Equal keys: the output is the mean of V, whose row r is filled with r.
  static v1::PutShardRequest Chunk(v1::TensorId tensor) {
    std::vector<float> values(kRows * kDim, 1.0f);
    for (size_t i = 0; tensor == v1::TENSOR_ID_V && i < values.size(); ++i) values[i] = i / kDim;
    v1::PutShardRequest request;
    v1::Chunk& chunk = *request.add_chunks();
    chunk.set_tensor(tensor);
    chunk.set_row_count(kRows);
    chunk.set_data(values.data(), values.size() * 4);
    chunk.set_crc32c(Crc32c(chunk.data().data(), chunk.data().size()));
    return request;
  }
  struct PutAnswer {
    absl::Status status;
    v1::ShardStatus shard;
  };
  PutAnswer Put(const std::string& ticket, const std::vector<v1::PutShardRequest>& chunks) {
    PutAnswer answer;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto writer = stub_->PutShard(&context, &answer.shard);
    v1::PutShardRequest first;
    first.set_ticket(ticket);
    bool open = writer->Write(first);
    for (const v1::PutShardRequest& chunk : chunks) open = open && writer->Write(chunk);
    writer->WritesDone();
    answer.status = FromGrpcStatus(writer->Finish());
    return answer;
  }
  std::vector<v1::PutShardRequest> AllChunks() {
    return {Chunk(v1::TENSOR_ID_Q), Chunk(v1::TENSOR_ID_K), Chunk(v1::TENSOR_ID_V)};
  }
  void ExpectAnswer(const std::string& job) {
    v1::FetchShardRequest request;
    request.set_ticket(Ticket(job));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto reader = stub_->FetchShard(&context, request);
    v1::FetchShardResponse response;
    int chunks = 0;
    bool reported = false;
    while (reader->Read(&response)) {
      EXPECT_FALSE(reported);
      reported = response.report().running().nanos() > 0 && !response.report().backend().empty();
      for (const v1::Chunk& chunk : response.chunks()) {
        ++chunks;
        EXPECT_EQ(chunk.crc32c(), Crc32c(chunk.data().data(), chunk.data().size()));
        const auto* values = reinterpret_cast<const float*>(chunk.data().data());
        const float wanted = chunk.tensor() == v1::TENSOR_ID_OUT ? (kRows - 1) / 2.0f
                                                                 : 2.0f + std::log(float{kRows});
        for (size_t i = 0; i < chunk.data().size() / 4; ++i) EXPECT_NEAR(values[i], wanted, 1e-5);
      }
    }
    EXPECT_TRUE(reported);
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(chunks, 2);
  }
  void Drop(const std::string& job) {
    Command command;
    command.mutable_drop()->mutable_shard()->set_job_id(job);
    command.mutable_drop()->mutable_shard()->set_attempt(1);
    coordinator_.Order(command);
    const auto dropped = coordinator_.log.Wait(Event::kDropped);
    ASSERT_TRUE(dropped.has_value());
    EXPECT_EQ(dropped->dropped().shard().job_id(), job);
  }
  // The worker's staging has room for this many jobs, so nothing of earlier ones is left.
  void ExpectAllStagingIsFree() {
    for (const char* job : {"one", "two"}) {
      Reserve(job);
      EXPECT_EQ(DetailOf(Put(Ticket(job), {}).status).reason, "MISSING_ROWS");
    }
  }

  FakeCoordinator coordinator_;
  std::atomic<int> exit_code_{-1};
  std::unique_ptr<Worker> worker_;
  control::v1::Register self_;
  std::unique_ptr<v1::DataPlane::Stub> stub_;
};

TEST_F(WorkerTest, RunsASoloJob) {
  EXPECT_EQ(self_.slot(), "worker-0");
  EXPECT_EQ(self_.data_endpoint(), worker_->data_endpoint());
  Reserve("job");
  const PutAnswer put = Put(Ticket("job"), AllChunks());
  EXPECT_TRUE(put.status.ok()) << put.status;
  EXPECT_TRUE(put.shard.complete());
  ExpectAnswer("job");
  const auto drained = coordinator_.log.Wait(Event::kOutputDrained);
  ASSERT_TRUE(drained.has_value());
  const bool told_before = coordinator_.log.Count(Event::kOutputReady) == 1;
  EXPECT_NE(told_before, drained->output_drained().has_report()) << "once, one way or the other";
  ExpectAllStagingIsFree();  // Without a Drop.
}

TEST_F(WorkerTest, OutputsWaitAsLongAsTheReserveSays) {
  Reserve("short", absl::Milliseconds(1));
  Reserve("long");
  for (const char* job : {"short", "long"}) {
    EXPECT_TRUE(Put(Ticket(job), AllChunks()).status.ok());
    EXPECT_TRUE(coordinator_.log.Wait(Event::kOutputReady).has_value());
  }
  const auto abandoned = coordinator_.log.Wait(Event::kShardAbandoned);
  ASSERT_TRUE(abandoned.has_value());
  EXPECT_EQ(abandoned->shard_abandoned().shard().job_id(), "short");
  ExpectAnswer("long");
}

TEST_F(WorkerTest, RefusesBadUploadsAndGoesOn) {
  Reserve("job");
  auto reason = [&](std::vector<v1::PutShardRequest> chunks) {
    return DetailOf(Put(Ticket("job"), chunks).status).reason;
  };
  v1::PutShardRequest bad = Chunk(v1::TENSOR_ID_Q);
  bad.mutable_chunks(0)->set_crc32c(1);
  EXPECT_EQ(reason({bad}), "CHECKSUM_MISMATCH");
  bad = Chunk(v1::TENSOR_ID_Q);
  bad.mutable_chunks(0)->set_row_begin(1);
  EXPECT_EQ(reason({bad}), "CHUNK_OUT_OF_RANGE");
  bad = Chunk(v1::TENSOR_ID_OUT);
  EXPECT_EQ(reason({bad}), "UNKNOWN_TENSOR");
  bad = Chunk(v1::TENSOR_ID_Q);
  bad.mutable_chunks(0)->set_row_count(2);
  EXPECT_EQ(reason({bad}), "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(reason({Chunk(v1::TENSOR_ID_Q), Chunk(v1::TENSOR_ID_Q)}), "CHUNK_OVERLAP");
  EXPECT_EQ(reason({Chunk(v1::TENSOR_ID_Q)}), "MISSING_ROWS");
  EXPECT_EQ(reason({v1::PutShardRequest()}), "STREAM_SEQUENCE");
  v1::PutShardRequest second_ticket;
  second_ticket.set_ticket(Ticket("job"));
  EXPECT_EQ(reason({second_ticket}), "STREAM_SEQUENCE");
  EXPECT_EQ(DetailOf(Put("forged", AllChunks()).status).reason, "BAD_TICKET");
  EXPECT_TRUE(Put(Ticket("job"), AllChunks()).status.ok());
  ExpectAnswer("job");
  Drop("job");
  EXPECT_EQ(DetailOf(Put(Ticket("job"), AllChunks()).status).reason, "JOB_ENDED");
  ExpectAllStagingIsFree();
}

TEST_F(WorkerTest, KeepsItsShardsWhenTheStreamBreaks) {
  Reserve("job");
  EXPECT_TRUE(Put(Ticket("job"), {}).status.code() == absl::StatusCode::kInvalidArgument);
  const std::string incarnation = self_.incarnation();
  coordinator_.Break();
  Registered();
  EXPECT_EQ(self_.incarnation(), incarnation);
  EXPECT_EQ(self_.resident_shards_size(), 1);
  EXPECT_TRUE(Put(Ticket("job"), AllChunks()).status.ok());
  ExpectAnswer("job");
  EXPECT_TRUE(coordinator_.log.Wait(Event::kOutputDrained).has_value());
  Drop("job");
}

struct ShortLeaseTest : WorkerTest {
  ShortLeaseTest() : WorkerTest([this](WorkerOptions*) { coordinator_.lease_seconds = 3; }) {}
};

TEST_F(ShortLeaseTest, FencesItselfAndComesBackAsAnother) {
  Reserve("job");
  const std::string incarnation = self_.incarnation();
  coordinator_.answers = false;
  coordinator_.StartNumbersAgain();
  const absl::Time end = absl::Now() + absl::Seconds(60);
  // Its tickets are void from the end of the lease on.
  std::string reason;
  do {
    reason = DetailOf(Put(Ticket("job"), {}).status).reason;
  } while (reason == "MISSING_ROWS" && absl::Now() < end);
  EXPECT_NE(reason, "MISSING_ROWS");
  coordinator_.answers = true;
  Registered();
  EXPECT_NE(self_.incarnation(), incarnation);
  EXPECT_EQ(self_.resident_shards_size(), 0);
  ExpectAllStagingIsFree();
}

class PinnedStagingTest : public WorkerTest {
 protected:
  PinnedStagingTest()
      : WorkerTest([this](WorkerOptions* options) {
          options->engine.take_staging = [this](int64_t bytes) {
            taken_ += bytes;
            return std::shared_ptr<std::byte>(new std::byte[bytes],
                                              std::default_delete<std::byte[]>());
          };
        }) {}
  std::atomic<int64_t> taken_{0};
};

TEST_F(PinnedStagingTest, ShardsLieInItsBackendsMemory) {
  Reserve("job");
  const PutAnswer put = Put(Ticket("job"), AllChunks());
  EXPECT_TRUE(put.status.ok()) << put.status;
  ExpectAnswer("job");
  EXPECT_GE(taken_, 4096);
}

class PartialBackendTest : public WorkerTest {
 protected:
  PartialBackendTest()
      : WorkerTest([](WorkerOptions* options) {
          options->engine.lacks = {{"mask/full", false, "Not without a mask.", ""}};
          options->engine.device_kind = DeviceKind::kCuda;
        }) {}
};

TEST_F(PartialBackendTest, SaysWhatItLacksWhenItRegisters) {
  EXPECT_EQ(self_.device_kind(), control::v1::DEVICE_KIND_CUDA);
  ASSERT_EQ(self_.lacks_size(), 1);
  EXPECT_EQ(self_.lacks(0).feature(), "mask/full");
  EXPECT_EQ(self_.lacks(0).why_not(), "Not without a mask.");
}

TEST_F(PartialBackendTest, RefusesAReservationThatItsBackendDoesNotServe) {
  Reserve("job");
  const auto failed = coordinator_.log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().error().reason(), "NOT_SERVED");
  EXPECT_EQ(failed->shard_failed().error().code(),
            static_cast<int>(absl::StatusCode::kUnimplemented));
}

class LostDeviceTest : public WorkerTest {
 protected:
  LostDeviceTest()
      : WorkerTest([](WorkerOptions* options) {
          options->engine.make_kernel =
              [](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
            return std::make_unique<ProbeKernel>([] {
              return MakeError(absl::StatusCode::kInternal, "an illegal address",
                               {std::string(kReasonDeviceFault), {}, {}, {}});
            });
          };
        }) {}
};

TEST_F(LostDeviceTest, TheJobIsToldAndTheWorkerLeaves) {
  Reserve("job");
  Put(Ticket("job"), AllChunks());
  const auto failed = coordinator_.log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().error().reason(), kReasonDeviceFault);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (exit_code_ < 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(exit_code_, 71);
}

// Its kernel never returns, and never checks its stop token.
class StuckWorkerDeathTest : public WorkerTest {
 protected:
  StuckWorkerDeathTest()
      : WorkerTest([this](WorkerOptions* options) {
          options->engine.make_kernel =
              [this](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
            return std::make_unique<ProbeKernel>([this] { return Hang(); });
          };
          options->step_timeout = absl::Milliseconds(100);
          options->stall_timeout = absl::Milliseconds(300);
        }) {}

 private:
  absl::Status Hang() {
    MutexLock lock(&mutex_);
    while (true) never_.Wait(&mutex_);
  }

  Mutex mutex_;
  CondVar never_;
};

TEST_F(StuckWorkerDeathTest, TheWatchdogEndsItWithItsOwnCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Reserve("job");
        Put(Ticket("job"), AllChunks());
        coordinator_.log.Wait(Event::kOutputReady);
      },
      testing::ExitedWithCode(70),
      "job=job flight record: the solo lane has made no progress.*job job");
}

TEST_F(WorkerTest, LeavesWhenItIsReleased) {
  // A beat shows that it has been welcomed. Before that it would exit at once.
  ASSERT_TRUE(coordinator_.log.Wait(Event::kBeat).has_value());
  worker_->Terminate();
  EXPECT_TRUE(coordinator_.log.Wait(Event::kLeaving).has_value());
  EXPECT_EQ(exit_code_, -1);
  Command drain;
  drain.mutable_drain();
  coordinator_.Order(drain);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (exit_code_ < 0 && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(exit_code_, 0);
}

TEST_F(WorkerTest, APortThatIsTakenFailsTheStart) {
  WorkerOptions options;
  options.coordinator = coordinator_.address();
  options.data_address = worker_->data_endpoint();
  options.engine = *MakeEngine({});
  const auto second = Worker::Start(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace annulus
