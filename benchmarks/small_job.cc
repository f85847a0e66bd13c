// A small job on one worker, compared with empty calls: 128 tokens, 8 heads of 64, bf16.

#include <cstdio>
#include <cstdlib>

#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/serve.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/rpc/callback_threads.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus::bench {
namespace {

constexpr int kRepeats = 300;

void EmptyCall(grpc::health::v1::Health::Stub* stub) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, {}, &response);
  if (!status.ok()) std::exit(1);
}

// A lower bound of a job's time: two calls, for its plan and its tensors, and its kernel.
double Ceiling(const BenchJob& job, double empty) {
  CpuKernel::Options options;
  options.threads = 2;
  auto kernel = CpuKernel::Create(options);
  if (!kernel.ok()) std::exit(1);
  KernelJobData data(job.spec(), 1);
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) seconds.push_back(data.Run(**kernel));
  return 2 * empty + Summarize(seconds).median;
}

Entry MakeEntry(const char* name, const std::vector<double>& job, double empty, double ceiling) {
  const Summary summary = Summarize(job);
  Entry entry;
  entry.name = name;
  entry.value = summary.median * 1e6;
  entry.unit = "us";
  entry.compared_to = "p50 of an empty unary call to the coordinator, same run";
  entry.ratio = summary.median / empty;
  entry.higher_is_better = false;
  entry.bar = 6;
  entry.ceiling = ceiling * 1e6;
  entry.repeats = kRepeats;
  entry.spread = summary.spread;
  return entry;
}

int Main() {
  const Serve serve(1, {});
  LimitCallbackThreads();  // Like the command line's client.
  Client client(OptionsFor(serve));
  auto health = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel(serve.address(), grpc::InsecureChannelCredentials()));
  BenchJob job(SelfAttention(DataType::kBf16, 128, 8, 64, false));
  Execution execution;
  execution.world_size = 1;
  for (int i = 0; i < 20; ++i) {  // Warms up connections, memory and CPU clocks.
    EmptyCall(health.get());
    job.Run(&client, execution, DataPath::kDirect);
    job.Run(&client, execution, DataPath::kGateway);
  }
  std::vector<double> empty, direct, gateway;
  for (int i = 0; i < kRepeats; ++i) {
    empty.push_back(TimeOnce([&] { EmptyCall(health.get()); }));
    direct.push_back(TimeOnce([&] { job.Run(&client, execution, DataPath::kDirect); }));
    gateway.push_back(TimeOnce([&] { job.Run(&client, execution, DataPath::kGateway); }));
  }
  const double base = Summarize(empty).median, ceiling = Ceiling(job, base);
  std::puts(ToJson({MakeEntry("small_job_direct_p50", direct, base, ceiling),
                    MakeEntry("small_job_gateway_p50", gateway, base, ceiling)})
                .c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
