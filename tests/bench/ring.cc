// Two workers of one thread each against one worker of two threads: what a ring costs over one
// process.

#include <cstdio>

#include "proto/convert.h"
#include "tests/bench/jobs.h"
#include "tests/bench/report.h"
#include "tests/bench/serve.h"

namespace annulus::bench {
namespace {

double RunningSeconds(const v1::JobStats& stats) {
  return absl::ToDoubleSeconds(DurationFromProto(stats.running()));
}

int Main() {
  constexpr int kRepeats = 5;
  const Serve two(2, {"--threads", "1"});
  const Serve one(1, {"--threads", "2"});
  Client ring_client(OptionsFor(two));
  Client one_client(OptionsFor(one));
  BenchJob job(SelfAttention(DataType::kFp32, 8192, 8, 128, false));
  Execution ring;
  ring.strategy = Strategy::kRingPassKv;
  ring.world_size = 2;
  std::vector<double> ring_seconds, one_seconds, exposed;
  for (int i = 0; i <= kRepeats; ++i) {
    const v1::JobStats stats = job.Run(&ring_client, ring, DataPath::kDirect);
    const v1::JobStats base = job.Run(&one_client, {}, DataPath::kDirect);
    if (i == 0) continue;
    ring_seconds.push_back(RunningSeconds(stats));
    exposed.push_back(absl::ToDoubleSeconds(DurationFromProto(stats.exposed_communication())));
    one_seconds.push_back(RunningSeconds(base));
  }
  const double flops = 4.0 * 8192 * 8192 * 8 * 128;
  const Summary ours = Summarize(ring_seconds), base = Summarize(one_seconds);
  Entry entry;
  entry.name = "ring_two_workers_fp32_8k";
  entry.value = flops / ours.median / 1e9;
  entry.unit = "GFLOP/s";
  entry.compared_to = "one worker with two threads, same run";
  entry.ratio = base.median / ours.median;
  entry.bar = 0.85;
  entry.ceiling = flops / base.median / 1e9;
  entry.repeats = kRepeats;
  entry.spread = ours.spread;
  std::fprintf(stderr, "bench: exposed communication %.1f ms of %.1f ms\n",
               Summarize(exposed).median * 1e3, ours.median * 1e3);
  std::puts(ToJson({entry}).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
