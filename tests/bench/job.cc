// A whole job on the direct path against what it cannot do without: the kernel's own time, and its
// bytes at the goodput of one upload stream, both measured in the same run.

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "proto/convert.h"
#include "tests/bench/jobs.h"
#include "tests/bench/kernel_job.h"
#include "tests/bench/report.h"
#include "tests/bench/serve.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus::bench {
namespace {

constexpr int kRepeats = 5;

std::unique_ptr<CpuKernel> MakeKernel() {
  CpuKernel::Options options;
  options.threads = 2;
  auto kernel = CpuKernel::Create(options);
  if (!kernel.ok()) {
    std::fprintf(stderr, "bench: %s\n", kernel.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(kernel);
}

// An upload of nearly nothing but keys and values.
AttentionSpec UploadSpec() {
  AttentionSpec spec = SelfAttention(DataType::kBf16, 65536, 8, 128, false);
  spec.sequences[0].q_len = 1;
  return spec;
}

int Main() {
  const Serve serve(1, {"--threads", "2"});
  Client client(OptionsFor(serve));
  BenchJob job(SelfAttention(DataType::kBf16, 8192, 8, 128, true));
  BenchJob upload(UploadSpec());
  const std::unique_ptr<CpuKernel> kernel = MakeKernel();
  KernelJobData data(job.spec(), 1);
  std::vector<double> rates, in_process, whole;
  // In turn, so that all three see the same moments of the machine; the first turn does not count.
  for (int i = 0; i <= kRepeats; ++i) {
    const v1::JobStats stats = upload.Run(&client, {}, DataPath::kDirect);
    const double kernel_seconds = data.Run(*kernel);
    const double seconds = TimeOnce([&] { job.Run(&client, {}, DataPath::kDirect); });
    if (i == 0) continue;
    rates.push_back(static_cast<double>(upload.input_bytes()) /
                    absl::ToDoubleSeconds(DurationFromProto(stats.uploading())));
    in_process.push_back(kernel_seconds);
    whole.push_back(seconds);
  }
  const Summary ours = Summarize(whole);
  const double kernel_seconds = Summarize(in_process).median;
  const double wire =
      static_cast<double>(job.input_bytes() + job.output_bytes()) / Summarize(rates).median;
  Entry entry;
  entry.name = "job_direct_8k_causal_bf16";
  entry.value = ours.median * 1e3;
  entry.unit = "ms";
  entry.compared_to = "the kernel in process, plus bytes at measured goodput";
  entry.ratio = ours.median / (kernel_seconds + wire);
  entry.higher_is_better = false;
  entry.bar = 1.35;
  entry.ceiling = (kernel_seconds + wire) * 1e3;
  entry.repeats = kRepeats;
  entry.spread = ours.spread;
  std::fprintf(stderr, "bench: kernel %.1f ms, bytes %.1f ms\n", kernel_seconds * 1e3, wire * 1e3);
  std::puts(ToJson({entry}).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
