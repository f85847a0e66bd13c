// The client library against a real coordinator and a real worker in this process.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "annulus/v1/data_plane.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/error.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "server/coordinator_server.h"
#include "tests/worker/small_worker.h"
#include "worker/worker.h"

namespace annulus {
namespace {

// Equal keys: every output row is the mean of V, which is 1.
struct Job {
  explicit Job(int64_t rows) : q(rows * 4, 1.f), out(rows * 4, -1.f) {
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 1;
    spec.head_dim = 4;
    spec.sequences.resize(1);
    spec.sequences[0].q_len = spec.sequences[0].kv_len = rows;
  }
  AttendArguments Arguments(const std::string& request_id, DataPath path) {
    AttendArguments arguments;
    arguments.spec = spec;
    for (const TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV}) {
      arguments.inputs[id] = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(q.data()),
                                                 q.size() * sizeof(float));
    }
    arguments.outputs[TensorId::kOut] =
        absl::MakeSpan(reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(float));
    arguments.path = path;
    arguments.timeout = absl::Seconds(120);
    arguments.request_id = request_id;
    return arguments;
  }
  AttentionSpec spec;
  std::vector<float> q, out;
};

class ClientLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    CoordinatorServer::Options options;
    options.coordinator.lease = absl::Seconds(60);
    options.address = options.control_address = "127.0.0.1:0";
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    WorkerOptions worker = SmallWorkerOptions(server_->control_address());
    worker.staging_bytes = worker.device_bytes = 32 << 20;
    worker_ = *Worker::Start(worker);
    ClientOptions client;
    client.address = server_->address();
    client_ = std::make_unique<Client>(client);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    bool ready = false;
    while (!ready && absl::Now() < deadline) {
      const auto info = client_->GetServerInfo();
      ready = info.ok() && info->ready();
    }
    ASSERT_TRUE(ready);
  }
  // Runs a job and returns its id.
  std::string Attend(const std::string& request_id, int64_t rows, DataPath path) {
    Job job(rows);
    const auto result = client_->Attend(job.Arguments(request_id, path));
    EXPECT_TRUE(result.ok()) << result.status();
    for (float value : job.out) EXPECT_NEAR(value, 1, 1e-6);
    return result.ok() ? result->stats.job_id() : "";
  }

  std::unique_ptr<CoordinatorServer> server_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientLibraryTest, ARepeatedRequestIdGivesItsOutputsEachTime) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    const std::string first = Attend("r1", 8, path);
    EXPECT_NE(Attend("r1", 8, path), first);
    Attend("r1", 9, path);  // The id is free again, also for other content.
  }
}

// The call that has its last row first ends the job; the other call is resent.
TEST_F(ClientLibraryTest, EqualCallsAtOnceAreBothAnswered) {
  for (int pair = 0; pair < 20; ++pair) {
    const DataPath path = pair % 2 == 0 ? DataPath::kDirect : DataPath::kGateway;
    const auto attend = [&] {
      constexpr int64_t kRows = 1500;
      Job job(kRows);
      job.spec.q_heads = job.spec.kv_heads = 4;
      job.spec.head_dim = 64;
      job.q.assign(kRows * 4 * 64, 1.f);
      job.out.assign(job.q.size(), -1.f);
      const auto result = client_->Attend(job.Arguments("pair", path));
      EXPECT_TRUE(result.ok()) << result.status();
      for (const float value : job.out) ASSERT_NEAR(value, 1, 1e-6);
    };
    std::thread other(attend);
    attend();
    other.join();
  }
}

TEST_F(ClientLibraryTest, ARequestIdInUseIsRefusedForOtherContent) {
  auto jobs = v1::Jobs::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  v1::RunJobRequest request;
  *request.mutable_spec() = SpecToProto(Job(8).spec);
  request.set_request_id("r1");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  auto waits = jobs->RunJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(waits->Read(&event));
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    Job job(9);
    const auto result = client_->Attend(job.Arguments("r1", path));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(DetailOf(result.status()).reason, "REQUEST_ID_REUSED");
  }
  context.TryCancel();
}

// Larger than gRPC's default limit of 4 MiB: 64 heads with separate masks, whose ranges, except
// one, are all after the sequence's end.
Job LargeSpec() {
  constexpr int64_t kRows = 8, kFar = int64_t{1} << 25;
  Job job(kRows);
  job.spec.q_heads = 64;
  for (int32_t head = 0; head < job.spec.q_heads; ++head) {
    Mask mask;
    mask.query_heads = {head};
    mask.ranges.push_back({0, kRows, 0, kRows});
    for (int64_t i = 0; i < 4095; ++i) {
      mask.ranges.push_back({kFar + i, kFar + i + 1, kFar, 2 * kFar});
    }
    job.spec.masks.push_back(std::move(mask));
  }
  job.q.resize(kRows * 4 * job.spec.q_heads, 1.f);
  job.out.resize(job.q.size(), -1.f);
  return job;
}

// Errors name the caller's fields, in any message.
TEST_F(ClientLibraryTest, FieldsAtFaultAreTheCallersOwn) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    Job job(8);
    AttendArguments arguments = job.Arguments("", path);
    arguments.execution.world_size = 2;
    const absl::Status status = client_->Attend(arguments).status();
    EXPECT_EQ(DetailOf(status).reason, "INSUFFICIENT_WORKERS") << status;
    ASSERT_EQ(DetailOf(status).fields.size(), 1u) << status;
    EXPECT_EQ(DetailOf(status).fields[0].field, "execution.world_size");
    EXPECT_EQ(status.message().find("execution.world_size: "), 0u) << status;
  }
}

TEST_F(ClientLibraryTest, ALargeSpecIsServedOnBothPaths) {
  for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
    Job job = LargeSpec();
    AttendArguments arguments = job.Arguments("", path);
    for (const TensorId id : {TensorId::kK, TensorId::kV}) {
      arguments.inputs[id] = arguments.inputs[id].first(8 * 4 * sizeof(float));
    }
    const auto result = client_->Attend(std::move(arguments));
    EXPECT_TRUE(result.ok()) << result.status();
    for (float value : job.out) EXPECT_NEAR(value, 1, 1e-6);
  }
}

TEST_F(ClientLibraryTest, AJobOfALargeSpecIsShown) {
  auto jobs = v1::Jobs::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  v1::RunJobRequest request;
  *request.mutable_spec() = SpecToProto(LargeSpec().spec);
  ASSERT_GT(request.ByteSizeLong(), 5u << 20);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  auto waits = jobs->RunJob(&context, request);
  v1::JobEvent event;
  ASSERT_TRUE(waits->Read(&event));
  const auto job = client_->GetJob(event.job_id());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec().masks_size(), 64);
  context.TryCancel();
}

// A scripted first owner of a job.
class ClientLibraryTwoOwnersTest : public ClientLibraryTest,
                                   public testing::WithParamInterface<int64_t> {
 protected:
  void Place(const std::string& request_id) {
    Job job(GetParam());
    jobs_ = v1::Jobs::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    v1::RunJobRequest request;
    *request.mutable_spec() = SpecToProto(job.spec);
    request.set_request_id(request_id);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    run_ = jobs_->RunJob(&context_, request);
    v1::JobEvent event;
    while (!event.has_placed()) ASSERT_TRUE(run_->Read(&event));
    shard_ = event.placed().shards(0);
    job_id_ = event.job_id();
  }
  // Sends ones for `tensors` tensors with PutShard.
  void Put(int tensors) {
    const auto plane = v1::DataPlane::NewStub(
        grpc::CreateChannel(shard_.endpoint(), grpc::InsecureChannelCredentials()));
    v1::ShardStatus status;
    grpc::ClientContext context;
    const auto writer = plane->PutShard(&context, &status);
    v1::PutShardRequest request;
    request.set_ticket(shard_.ticket());
    ASSERT_TRUE(writer->Write(request));
    const std::vector<float> ones(GetParam() * 4, 1.f);
    for (int i = 0; i < tensors; ++i) {
      v1::PutShardRequest message;
      v1::Chunk& chunk = *message.add_chunks();
      chunk.set_tensor(static_cast<v1::TensorId>(v1::TENSOR_ID_Q + i));
      chunk.set_row_count(GetParam());
      chunk.set_data(ones.data(), ones.size() * sizeof(float));
      ASSERT_TRUE(writer->Write(message));
    }
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().ok(), tensors == 3);
  }
  void ExpectOwnInputsOnly(const std::string& request_id) {
    for (const DataPath path : {DataPath::kDirect, DataPath::kGateway}) {
      Job other(GetParam());
      other.q[0] = 2;
      const auto result = client_->Attend(other.Arguments(request_id, path));
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
      EXPECT_EQ(DetailOf(result.status()).reason, "CHUNK_OVERLAP");
    }
    EXPECT_EQ(Attend(request_id, GetParam(), DataPath::kDirect), job_id_);
  }

  std::unique_ptr<v1::Jobs::Stub> jobs_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::JobEvent>> run_;
  v1::ShardPlan shard_;
  std::string job_id_;
};

TEST_P(ClientLibraryTwoOwnersTest, ACompleteShardIsNoAnswerToOtherInputs) {
  Place("r1");
  Put(3);
  ExpectOwnInputsOnly("r1");
}

TEST_P(ClientLibraryTwoOwnersTest, NeitherIsOneOfBothOwnersHalves) {
  Place("r1");
  Put(1);
  ExpectOwnInputsOnly("r1");
}

// Small shards are sent with their tickets, large ones after them.
INSTANTIATE_TEST_SUITE_P(Rows, ClientLibraryTwoOwnersTest, testing::Values(8, 12000));

}  // namespace
}  // namespace annulus
