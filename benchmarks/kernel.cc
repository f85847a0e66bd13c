// The CPU kernel compared with this machine's roof: the multiply-adds per second of a
// microbenchmark that alternates with it in one process.
// Arguments: names of cases to run (default: all); --threads N, --path NAME.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/fma_peak.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/measured_kernel.h"

namespace annulus::bench {
namespace {

struct Case {
  std::string name;
  DataType dtype;
  int64_t rows;
  int32_t q_heads, kv_heads, dim;
  bool causal;
  double bar;  // Fraction of the FMA peak. 0: none.
  bool gradients = false;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    const std::string name(DataTypeName(dtype));
    const double full = dtype == DataType::kFp32 ? 0.8 : 0.6;
    cases.push_back({name + " full 4k", dtype, 4096, 4, 4, 128, false, full});
    cases.push_back({name + " full 8k", dtype, 8192, 2, 2, 128, false, full});
    cases.push_back({name + " causal 8k", dtype, 8192, 2, 2, 128, true, 0});
    cases.push_back({name + " full 4k GQA 8:1", dtype, 4096, 8, 1, 128, false, 0});
    cases.push_back({name + " full 4k D64", dtype, 4096, 4, 4, 64, false, 0});
    cases.push_back({name + " full 8k one head", dtype, 8192, 1, 1, 128, false, 0});
    cases.push_back({name + " gradients full 4k", dtype, 4096, 4, 4, 128, false, 0.35, true});
    cases.push_back({name + " gradients causal 4k", dtype, 4096, 4, 4, 128, true, 0, true});
  }
  cases.push_back({"fp16 full 4k", DataType::kFp16, 4096, 4, 4, 128, false, 0.6});
  cases.push_back({"fp16 causal 8k", DataType::kFp16, 8192, 2, 2, 128, true, 0});
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    cases.push_back(
        {absl::StrCat(DataTypeName(dtype), " full 128 rows"), dtype, 128, 8, 8, 128, false, 0});
  }
  return cases;
}

AttentionSpec SpecOf(const Case& c) {
  AttentionSpec spec;
  spec.dtype = c.dtype;
  spec.q_heads = c.q_heads;
  spec.kv_heads = c.kv_heads;
  spec.head_dim = c.dim;
  if (c.gradients) spec.operation = Operation::kGradients;
  Sequence sequence;
  sequence.q_len = sequence.kv_len = c.rows;
  spec.sequences = {sequence};
  if (c.causal) {
    spec.masks.emplace_back();
    spec.masks[0].causal = true;
  }
  return spec;
}

// The rate that a case is compared with.
struct Roof {
  std::string name;
  std::function<double()> gflops;
  double bar;  // 0: none.
};

double Gflops(KernelJobData& data, AttentionKernel& kernel) {
  constexpr double kFlops = 4e9;  // Small jobs are repeated until they take some milliseconds.
  const int calls = std::max(1, static_cast<int>(kFlops / data.flops()));
  double seconds = 0;
  for (int i = 0; i < calls; ++i) seconds += data.Run(kernel);
  return calls * data.flops() / seconds / 1e9;
}

// The same kernel's rate on another case.
Roof OwnRoof(const std::string& name, const Case& c, double bar, AttentionKernel& kernel) {
  const auto data = std::make_shared<KernelJobData>(SpecOf(c), /*seed=*/2);
  data->Run(kernel);
  return {name, [=, &kernel] { return Gflops(*data, kernel); }, bar};
}

// Fraction of the peak of bf16 products, on CPUs with AMX and on others.
double Bf16Bar(const Case& c, bool amx) {
  if (c.gradients) return 0;
  if (c.dim == 64) return amx ? 0 : 0.74;
  return c.causal ? (amx ? 0.47 : 0) : (amx ? 0.56 : 0.8);
}

std::vector<Roof> RoofsOf(const Case& c, AttentionKernel& kernel, const std::string& path,
                          int threads) {
  const bool amx = path == "amx";
  Case own = c;
  if (c.rows <= 128) {
    own.rows = 4096;
    return {OwnRoof("its own rate at 4k rows", own, 0.5, kernel)};
  }
  constexpr double kSeconds = 0.2;
  std::vector<Roof> roofs = {
      {"FMA peak", [=] { return FmaPeakGflops(path, threads, kSeconds); }, c.bar}};
  const std::string peak = Bf16PeakName(path);
  if (!peak.empty() && c.dtype == DataType::kBf16) {
    roofs.push_back(
        {peak, [=] { return Bf16PeakGflops(path, threads, kSeconds); }, Bf16Bar(c, amx)});
  }
  if (c.gradients) {
    own.gradients = false;
    roofs.push_back(OwnRoof("its own forward rate", own, amx ? 0.6 : 0.8, kernel));
  } else if (c.causal) {
    own.causal = false;
    roofs.push_back(OwnRoof("its own rate without a mask", own, amx ? 0 : 0.93, kernel));
  }
  return roofs;
}

Entry Measure(const Case& c, AttentionKernel& kernel, const std::string& path, int threads,
              const Roof& roof) {
  constexpr int kRepeats = 5;
  KernelJobData data(SpecOf(c), /*seed=*/1);
  data.Run(kernel);  // Touches all memory once.
  std::vector<double> rates, peaks;
  for (int i = 0; i < kRepeats; ++i) {
    peaks.push_back(roof.gflops());
    rates.push_back(Gflops(data, kernel));
  }
  Entry entry = EntryOfRounds(rates, peaks);
  entry.name =
      absl::StrCat("kernel ", path, " ", c.name, ", ", threads, " threads, of ", roof.name);
  entry.unit = "GFLOP/s";
  entry.compared_to = absl::StrCat(roof.name, " of the same threads, alternating");
  if (roof.bar > 0) entry.bar = roof.bar;
  Say(entry);
  return entry;
}

int Main(int argc, char** argv) {
  std::vector<std::string> names;
  const MeasuredKernel measured = KernelOfArguments(argc, argv, &names);
  std::vector<Entry> entries;
  for (const Case& c : AllCases()) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted = wanted || c.name == name;
    if (!wanted) continue;
    for (const Roof& roof : RoofsOf(c, *measured.kernel, measured.path, measured.threads)) {
      entries.push_back(Measure(c, *measured.kernel, measured.path, measured.threads, roof));
    }
  }
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
