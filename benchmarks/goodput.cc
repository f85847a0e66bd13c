// One PutShard stream compared with one raw TCP connection over loopback.

#include <cstdio>

#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "benchmarks/tcp.h"
#include "proto/wire/convert.h"

namespace annulus::bench {
namespace {

// One query over many keys, so that the job is almost only its upload.
AttentionSpec UploadSpec() {
  AttentionSpec spec = SelfAttention(DataType::kBf16, 65536, 8, 128, false);
  spec.sequences[0].q_len = 1;
  return spec;
}

int Main() {
  constexpr int kRepeats = 7;
  const Serve serve(1, {});
  Client client(OptionsFor(serve));
  BenchJob job(UploadSpec());
  std::vector<double> put, tcp;
  // Alternating, so that changes of the machine affect both.
  for (int i = 0; i <= kRepeats; ++i) {
    const v1::JobStats stats = job.Run(&client, {}, DataPath::kDirect);
    const double seconds = absl::ToDoubleSeconds(DurationFromProto(stats.uploading()));
    const double raw = MeasureTcpLoopback(job.input_bytes()).bytes_per_second;
    if (i == 0) continue;
    put.push_back(static_cast<double>(job.input_bytes()) / seconds);
    tcp.push_back(raw);
  }
  const Summary ours = Summarize(put), ceiling = Summarize(tcp);
  Entry entry;
  entry.name = "put_shard_goodput";
  entry.value = ours.median / 1e9;
  entry.unit = "GB/s";
  entry.compared_to = "one raw TCP connection over loopback, same bytes, same run";
  entry.ratio = ours.median / ceiling.median;
  entry.bar = 0.7;
  entry.ceiling = ceiling.median / 1e9;
  entry.repeats = kRepeats;
  entry.spread = ours.spread;
  std::puts(ToJson({entry}).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
