// The client library against a coordinator and a worker, all of them real and in this process.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "annulus/v1/jobs.grpc.pb.h"
#include "attention/error.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "proto/convert.h"
#include "server/coordinator_server.h"
#include "worker/backend.h"
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
    arguments.timeout = absl::Seconds(30);
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
    options.address = options.control_address = "127.0.0.1:0";
    auto server = CoordinatorServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    WorkerOptions worker;
    worker.coordinator = server_->control_address();
    worker.slot = "w0";
    worker.data_address = "127.0.0.1:0";
    BackendOptions backend;
    backend.comm_host = "127.0.0.1";
    worker.engine = *MakeEngine(backend);
    worker.staging_bytes = worker.device_bytes = 1 << 20;
    worker.exit = [](int) {};
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
  // The job's id.
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
    Attend("r1", 9, path);  // The id is free again for other content too.
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

}  // namespace
}  // namespace annulus
