// Two workers of one thread each compared with one worker of two threads: the cost of a ring. A
// ring must move its bytes, which takes time of the same threads. So a relative rate of 1 / (1 +
// CPU seconds for the bytes / CPU seconds for the tasks) means that nothing else was lost.

#include <cstdio>

#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "benchmarks/tcp.h"
#include "proto/wire/convert.h"

namespace annulus::bench {
namespace {

constexpr int32_t kDim = 128;
constexpr int kThreads = 2;
constexpr int64_t kTcpBytes = int64_t{1} << 28;

struct Case {
  const char* name;
  DataType dtype;
  int64_t length;
  int32_t heads;
  int repeats;
  double bar;
  bool of_bound;  // True if the bar is a fraction of the bound.
};
constexpr Case kCases[] = {
    {"ring_two_workers_fp32_8k", DataType::kFp32, 8192, 8, 5, 0.93, false},
    {"ring_two_workers_fp32_32k", DataType::kFp32, 32768, 2, 3, 0.97, false},
    {"ring_two_workers_bf16_8k", DataType::kBf16, 8192, 8, 5, 0.9, true},
};

double RunningSeconds(const v1::JobStats& stats) {
  return absl::ToDoubleSeconds(DurationFromProto(stats.running()));
}

Entry Measure(const Case& c, Client* ring_client, Client* one_client) {
  BenchJob job(SelfAttention(c.dtype, c.length, c.heads, kDim, false));
  Execution ring;
  ring.strategy = Strategy::kRingPassKv;
  ring.world_size = kThreads;
  std::vector<double> ring_seconds, one_seconds, exposed, bytes_seconds;
  int64_t bytes = 0;
  for (int i = 0; i <= c.repeats; ++i) {
    const v1::JobStats stats = job.Run(ring_client, ring, DataPath::kDirect);
    const v1::JobStats base = job.Run(one_client, {}, DataPath::kDirect);
    const double byte_seconds = MeasureTcpLoopback(kTcpBytes).cpu_seconds;
    if (i == 0) continue;
    bytes = 0;
    for (const int64_t sent : stats.bytes_sent_per_rank()) bytes += sent;
    ring_seconds.push_back(RunningSeconds(stats));
    exposed.push_back(absl::ToDoubleSeconds(DurationFromProto(stats.exposed_communication())));
    one_seconds.push_back(RunningSeconds(base));
    bytes_seconds.push_back(byte_seconds * static_cast<double>(bytes));
  }
  const double length = static_cast<double>(c.length), flops = 4 * length * length * c.heads * kDim;
  const Summary ours = Summarize(ring_seconds), base = Summarize(one_seconds);
  const double moving = Summarize(bytes_seconds).median;
  const double bound = 1 / (1 + moving / (kThreads * base.median));
  std::fprintf(
      stderr,
      "bench: %s: waited for keys %.1f ms of %.1f; %.1f MB take %.1f ms of a CPU, so about "
      "%.3f of one worker at best\n",
      c.name, Summarize(exposed).median * 1e3, ours.median * 1e3, bytes / 1e6, moving * 1e3, bound);
  Entry entry;
  entry.name = c.name;
  entry.value = flops / ours.median / 1e9;
  entry.unit = "GFLOP/s";
  entry.compared_to = "one worker with two threads, same run";
  entry.ratio = base.median / ours.median;
  entry.bar = c.of_bound ? c.bar * bound : c.bar;
  entry.ceiling = bound * flops / base.median / 1e9;
  entry.repeats = c.repeats;
  entry.spread = ours.spread;
  return entry;
}

int Main() {
  const Serve two(kThreads, {"--threads", "1"});
  const Serve one(1, {"--threads", "2"});
  Client ring_client(OptionsFor(two));
  Client one_client(OptionsFor(one));
  std::vector<Entry> entries;
  for (const Case& c : kCases) entries.push_back(Measure(c, &ring_client, &one_client));
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
