// A causal job of a million tokens end to end on two workers, and two jobs with a window: time,
// fraction of the machine's peak, memory compared with the plan's prediction, and sampled rows in
// fp64.
// Argument: --tokens N.

#include <sys/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/fma_peak.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "client/cli/verify/verify.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus::bench {
namespace {

constexpr int kWorkers = 2;
constexpr int32_t kDim = 128;
constexpr int64_t kWindow = 4096;
constexpr int64_t kSampledRows = 24;
constexpr int64_t kPackedBytes = int64_t{64}  // Memory in addition to a plan's peak
                                              // (docs/explanation/kernels.md, "Memory").
                                 << 20;

// The value of `field` in /proc/PID/status, in bytes.
int64_t StatusBytes(const std::string& pid, const std::string& field) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (absl::StartsWith(line, field) &&
        std::sscanf(line.c_str() + field.size(), ": %ld", &kib) == 1)
      return kib << 10;
  }
  return 0;
}

// Process ids of the workers among the children of `parent`.
std::vector<std::string> WorkersOf(pid_t parent) {
  std::vector<std::string> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    int64_t number = 0;
    if (!absl::SimpleAtoi(pid, &number)) continue;
    std::ifstream status(entry.path() / "status");
    std::string line, name;
    int64_t ppid = 0;
    while (std::getline(status, line)) {
      if (absl::StartsWith(line, "Name:")) name = line;
      std::sscanf(line.c_str(), "PPid: %ld", &ppid);
    }
    if (ppid == parent && absl::StrContains(name, "annulus-worker")) pids.push_back(pid);
  }
  return pids;
}

AttentionSpec SpecOf(int64_t tokens, bool window) {
  AttentionSpec spec = SelfAttention(DataType::kBf16, tokens, /*heads=*/1, kDim, /*causal=*/true);
  if (window) spec.masks[0].window_left = kWindow - 1;
  return spec;
}

double Flops(const AttentionSpec& spec) {
  const auto n = static_cast<double>(spec.q_rows());
  const auto w = static_cast<double>(kWindow);
  const bool window = spec.masks[0].window_left.has_value() && w < n;
  return 4.0 * kDim * (window ? n * w - w * (w - 1) / 2 : n * (n + 1) / 2);
}

struct Peak {
  std::string name;
  double gflops = 0;
};
Peak PeakOfThisMachine() {
  const std::unique_ptr<CpuKernel> kernel = *CpuKernel::Create(CpuKernel::Options());
  const std::string path = kernel->Description().substr(std::strlen("cpu/"));
  const std::string peak = Bf16PeakName(path);
  if (!peak.empty()) return {peak, Bf16PeakGflops(path, kWorkers, 1)};
  return {"fp32 FMA peak", FmaPeakGflops(path, kWorkers, 1)};
}

class Million {
 public:
  Million() : serve_(kWorkers, {"--threads", "1"}), client_(OptionsFor(serve_)) {
    for (const std::string& pid : WorkersOf(serve_.pid())) {
      before_ = std::max(before_, StatusBytes(pid, "VmRSS"));
    }
  }

  // Seconds from the call to the last output row. Verifies sampled rows.
  double Run(const AttentionSpec& spec) {
    BenchJob job(spec);
    Execution execution;
    execution.world_size = kWorkers;
    const double seconds =
        TimeOnce([&] { last_ = job.RunOnce(&client_, execution, DataPath::kDirect); });
    VerifyInput input;
    input.q = job.tensor(TensorId::kQ);
    input.k = job.tensor(TensorId::kK);
    input.v = job.tensor(TensorId::kV);
    input.out = job.tensor(TensorId::kOut);
    input.lse = job.tensor(TensorId::kLse);
    const absl::StatusOr<VerifyReport> report = VerifyRows(spec, input, kSampledRows, /*seed=*/1);
    if (!report.ok() || !report->within()) {
      std::fprintf(stderr, "bench: sampled rows are wrong\n");
      std::exit(1);
    }
    staging_ = (job.input_bytes() + job.output_bytes()) / kWorkers;
    return seconds;
  }

  // Memory of the worker that grew most, compared with the last job's plan.
  Entry Memory(const std::string& name) const {
    int64_t most = 0;
    for (const std::string& pid : WorkersOf(serve_.pid())) {
      most = std::max(most, StatusBytes(pid, "VmHWM"));
    }
    const int64_t predicted = last_.plan.peak_bytes_per_rank() + staging_ + kPackedBytes;
    Entry entry;
    entry.name = name + ", peak memory of a worker";
    entry.value = static_cast<double>(most - before_) / (1 << 20);
    entry.unit = "MiB";
    entry.compared_to = "the plan's peak, the shard in staging and 64 MiB of packed keys";
    entry.ratio = static_cast<double>(most - before_) / static_cast<double>(predicted);
    entry.higher_is_better = false;
    entry.bar = 1.1;
    entry.ceiling = static_cast<double>(predicted) / (1 << 20);
    return entry;
  }

 private:
  const Serve serve_;
  Client client_;
  AttendResult last_;
  int64_t before_ = 0, staging_ = 0;
};

Entry RateEntry(const std::string& name, double seconds, double flops, const Peak& peak) {
  Entry entry;
  entry.name = name;
  entry.value = seconds;
  entry.unit = "s";
  entry.compared_to = absl::StrCat("GFLOP/s end to end over the ", peak.name, " of two threads");
  entry.ratio = flops / seconds / 1e9 / peak.gflops;
  entry.ceiling = flops / 1e9 / peak.gflops;
  std::fprintf(stderr, "%s: %.1f s, %.0f GFLOP/s, %.3f of the %s\n", name.c_str(), seconds,
               flops / seconds / 1e9, *entry.ratio, peak.name.c_str());
  return entry;
}

// Seconds of a service's first job of its size, which touches its memory for the first time, and of
// the second.
struct WindowTimes {
  double first = 0, second = 0;
};
WindowTimes RunWindow(int64_t length, int64_t most, Million* million, Entry* memory) {
  million->Run(SpecOf(most / 64, true));  // Opens connections.
  WindowTimes times;
  times.first = million->Run(SpecOf(length, true));
  if (memory != nullptr) *memory = million->Memory("");
  times.second = million->Run(SpecOf(length, true));
  return times;
}

Entry GrowthEntry(const std::string& name, double growth) {
  Entry entry;
  entry.name = name + ", time over that of half as many tokens";
  entry.value = growth;
  entry.compared_to = "2: as tokens grow, not as their square";
  entry.ratio = growth / 2;
  entry.higher_is_better = false;
  entry.bar = 1.2;
  entry.ceiling = 2;
  return entry;
}

int Main(int argc, char** argv) {
  int64_t tokens = int64_t{1} << 20;
  if (!ReadOnlyFlag(argc, argv, "--tokens", /*least=*/64, &tokens)) return 2;
  std::vector<Entry> entries;
  const Peak peak = PeakOfThisMachine();
  const std::string name = absl::StrCat("million ", tokens, " tokens, bf16, D128, ");
  {
    Million million;
    const AttentionSpec causal = SpecOf(tokens, false);
    entries.push_back(
        RateEntry(name + "causal", million.Run(causal), Flops(causal), PeakOfThisMachine()));
    entries.push_back(million.Memory(name + "causal"));
  }
  // A new service for each, because memory kept from another job would count too.
  const WindowTimes half = [&] {
    Million million;
    return RunWindow(tokens / 2, tokens, &million, nullptr);
  }();
  Million million;
  Entry memory;
  const WindowTimes whole = RunWindow(tokens, tokens, &million, &memory);
  const std::string window = name + "window 4096", again = window + " again";
  entries.push_back(RateEntry(window, whole.first, Flops(SpecOf(tokens, true)), peak));
  memory.name = window + memory.name;
  entries.push_back(memory);
  entries.push_back(GrowthEntry(window, whole.first / half.first));
  entries.push_back(RateEntry(again, whole.second, Flops(SpecOf(tokens, true)), peak));
  entries.push_back(GrowthEntry(again, whole.second / half.second));
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
