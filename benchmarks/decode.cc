// One query row per head over many keys: bytes of keys and values per second, compared with the
// rate at which the same threads read the same memory, alternating in one process.
// Arguments: --threads N, --path NAME.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/kernel_job.h"
#include "benchmarks/measured_kernel.h"
#include "benchmarks/read_rate.h"

namespace annulus::bench {
namespace {

struct Case {
  std::string name;
  DataType dtype;
  int32_t q_heads, kv_heads;
  int64_t keys;
  double bar;  // 0: none.
};

constexpr double kBar = 0.9;

std::vector<Case> AllCases() {
  return {{"bf16, 8 heads, 128k keys", DataType::kBf16, 8, 8, 131072, kBar},
          {"bf16, 8 heads of 1, 512k keys", DataType::kBf16, 8, 1, 524288, kBar},
          {"bf16, one head, 512k keys", DataType::kBf16, 1, 1, 524288, kBar},
          {"fp16, 8 heads, 128k keys", DataType::kFp16, 8, 8, 131072, 0},
          {"fp32, 8 heads, 64k keys", DataType::kFp32, 8, 8, 65536, kBar}};
}

AttentionSpec SpecOf(const Case& c) {
  AttentionSpec spec;
  spec.dtype = c.dtype;
  spec.q_heads = c.q_heads;
  spec.kv_heads = c.kv_heads;
  spec.head_dim = 128;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = 1;
  spec.sequences[0].kv_len = c.keys;
  return spec;
}

Entry Measure(const Case& c, AttentionKernel& kernel, int threads) {
  constexpr int kRepeats = 7;
  KernelJobData data(SpecOf(c), /*seed=*/1);
  data.Run(kernel);  // Touches all memory once.
  std::vector<double> rates, roofs;
  for (int i = 0; i < kRepeats; ++i) {
    roofs.push_back(ReadBytesPerSecond(data.keys_and_values(), threads) / 1e9);
    rates.push_back(static_cast<double>(data.keys_and_values().size()) / data.Run(kernel) / 1e9);
  }
  Entry entry = EntryOfRounds(rates, roofs);
  entry.name =
      absl::StrCat("decode ", kernel.Description(), " ", c.name, ", ", threads, " threads");
  entry.unit = "GB/s";
  entry.compared_to = "a plain read of the same memory by as many threads, alternating";
  if (c.bar > 0) entry.bar = c.bar;
  Say(entry);
  return entry;
}

int Main(int argc, char** argv) {
  const MeasuredKernel measured = KernelOfArguments(argc, argv, nullptr);
  std::vector<Entry> entries;
  for (const Case& c : AllCases())
    entries.push_back(Measure(c, *measured.kernel, measured.threads));
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) { return annulus::bench::Main(argc, argv); }
