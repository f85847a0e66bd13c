// A whole job on the direct path against what it cannot do without: the kernel's own time, and its
// bytes at the goodput of one upload stream, both measured in the same run.

#include <cstdio>
#include <cstdlib>

#include "proto/convert.h"
#include "tests/bench/jobs.h"
#include "tests/bench/kernel_job.h"
#include "tests/bench/report.h"
#include "tests/bench/serve.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus::bench {
namespace {

constexpr int kRepeats = 5;

std::vector<double> KernelSeconds(const AttentionSpec& spec) {
  CpuKernel::Options options;
  options.threads = 2;
  auto kernel = CpuKernel::Create(options);
  if (!kernel.ok()) {
    std::fprintf(stderr, "bench: %s\n", kernel.status().ToString().c_str());
    std::exit(1);
  }
  KernelJobData data(spec, 1);
  data.Run(**kernel);
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) seconds.push_back(data.Run(**kernel));
  return seconds;
}

// Bytes per second of uploads of nothing but keys.
double Goodput(Client* client) {
  AttentionSpec spec = SelfAttention(DataType::kBf16, 65536, 8, 128, false);
  spec.sequences[0].q_len = 1;
  BenchJob upload(spec);
  std::vector<double> rates;
  for (int i = 0; i <= kRepeats; ++i) {
    const v1::JobStats stats = upload.Run(client, {}, DataPath::kDirect);
    rates.push_back(static_cast<double>(upload.input_bytes()) /
                    absl::ToDoubleSeconds(DurationFromProto(stats.uploading())));
  }
  return Summarize(rates).median;
}

int Main() {
  const Serve serve(1, {"--threads", "2"});
  Client client(OptionsFor(serve));
  BenchJob job(SelfAttention(DataType::kBf16, 8192, 8, 128, true));
  const double goodput = Goodput(&client);
  const Summary kernel = Summarize(KernelSeconds(job.spec()));
  const Summary whole = Summarize(Time(kRepeats, [&] { job.Run(&client, {}, DataPath::kDirect); }));
  const double wire = static_cast<double>(job.input_bytes() + job.output_bytes()) / goodput;
  Entry entry;
  entry.name = "job_direct_8k_causal_bf16";
  entry.value = whole.median * 1e3;
  entry.unit = "ms";
  entry.compared_to = "the kernel in process, plus bytes at measured goodput";
  entry.ratio = whole.median / (kernel.median + wire);
  entry.higher_is_better = false;
  entry.bar = 1.35;
  entry.ceiling = (kernel.median + wire) * 1e3;
  entry.repeats = kRepeats;
  entry.spread = whole.spread;
  std::fprintf(stderr, "bench: kernel %.1f ms, bytes %.1f ms\n", kernel.median * 1e3, wire * 1e3);
  std::puts(ToJson({entry}).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
