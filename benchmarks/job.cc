// A whole job on the direct path, compared with its necessary parts: the kernel's own time, and its
// bytes at the goodput of one upload stream. Both are measured in the same run.

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/serve.h"
#include "proto/wire/convert.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus::bench {
namespace {

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

// Almost only an upload of keys and values.
AttentionSpec UploadSpec() {
  AttentionSpec spec = SelfAttention(DataType::kBf16, 65536, 8, 128, false);
  spec.sequences[0].q_len = 1;
  return spec;
}

Entry Measure(Client* client, AttentionKernel& kernel, int64_t length, int repeats, double bar) {
  BenchJob job(SelfAttention(DataType::kBf16, length, 8, 128, true));
  BenchJob upload(UploadSpec());
  KernelJobData data(job.spec(), 1);
  std::vector<double> rates, in_process, whole, uploading, running;
  // Alternating, so that changes of the machine affect all three. The first round does not count.
  for (int i = 0; i <= repeats; ++i) {
    const v1::JobStats stats = upload.Run(client, {}, DataPath::kDirect);
    const double kernel_seconds = data.Run(kernel);
    v1::JobStats of_job;
    const double seconds = TimeOnce([&] { of_job = job.Run(client, {}, DataPath::kDirect); });
    if (i == 0) continue;
    uploading.push_back(absl::ToDoubleSeconds(DurationFromProto(of_job.uploading())));
    running.push_back(absl::ToDoubleSeconds(DurationFromProto(of_job.running())));
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
  entry.name = absl::StrCat("job_direct_", length / 1024, "k_causal_bf16");
  entry.value = ours.median * 1e3;
  entry.unit = "ms";
  entry.compared_to = "the kernel in process, plus bytes at measured goodput";
  entry.ratio = ours.median / (kernel_seconds + wire);
  entry.higher_is_better = false;
  entry.bar = bar;
  entry.ceiling = (kernel_seconds + wire) * 1e3;
  entry.repeats = repeats;
  entry.spread = ours.spread;
  std::fprintf(
      stderr,
      "bench: %s: kernel %.1f ms, bytes %.1f ms; of the job, upload %.1f ms, steps %.1f ms\n",
      entry.name.c_str(), kernel_seconds * 1e3, wire * 1e3, Summarize(uploading).median * 1e3,
      Summarize(running).median * 1e3);
  return entry;
}

int Main() {
  const Serve serve(1, {"--threads", "2"});
  Client client(OptionsFor(serve));
  const std::unique_ptr<CpuKernel> kernel = MakeKernel();
  std::puts(ToJson({Measure(&client, *kernel, 8192, /*repeats=*/5, /*bar=*/1.15),
                    Measure(&client, *kernel, 32768, /*repeats=*/3, /*bar=*/1.05)})
                .c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
