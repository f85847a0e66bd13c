// Masked attention against full attention of the same rows: what a kernel computes should cost what
// it shows. The tasks are those of the one-rank schedule.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/fma_peak.h"
#include "tests/bench/kernel_job.h"
#include "tests/bench/report.h"
#include "worker/kernel/cpu_kernel.h"

namespace annulus::bench {
namespace {

constexpr int64_t kRows = 65536;
constexpr int kThreads = 2;

AttentionSpec Base(DataType dtype) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 128;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = kRows;
  return spec;
}

AttentionSpec Window(DataType dtype) {
  AttentionSpec spec = Base(dtype);
  spec.masks.emplace_back().causal = true;
  spec.masks[0].window_left = 1023;
  return spec;
}

// Lengths of 64 to 8,191 rows, many short ones, to kRows together.
std::vector<int64_t> DocumentLengths() {
  std::mt19937_64 random(1);
  std::vector<int64_t> lengths;
  for (int64_t left = kRows; left > 0; left -= lengths.back()) {
    const int64_t length = static_cast<int64_t>(64 << random() % 7) + random() % 64;
    lengths.push_back(std::min(left, length + static_cast<int64_t>(random()) % length));
  }
  return lengths;
}

AttentionSpec Documents(DataType dtype) {
  AttentionSpec spec = Base(dtype);
  spec.sequences.clear();
  for (const int64_t length : DocumentLengths()) {
    spec.sequences.emplace_back();
    spec.sequences.back().q_len = spec.sequences.back().kv_len = length;
  }
  spec.masks.emplace_back().causal = true;
  return spec;
}

// The same as a range list over one sequence.
AttentionSpec Ranges(DataType dtype) {
  AttentionSpec spec = Base(dtype);
  spec.masks.emplace_back();
  int64_t begin = 0;
  for (const int64_t length : DocumentLengths()) {
    const int64_t end = begin + length;
    spec.masks[0].ranges.push_back({begin, end, begin, end, MaskRange::Kind::kCausal});
    begin = end;
  }
  return spec;
}

// Share of all pairs that lie in tiles of 64 × 64 with a visible pair.
double TiledShare(const MaskMap& mask) {
  constexpr int64_t kTile = 64;
  int64_t tiles = 0;
  for (int64_t row = 0; row < kRows; row += kTile) {
    std::vector<Interval> columns;
    for (const Interval& keys : mask.VisibleToAny(0, {row, row + kTile})) {
      columns.push_back({keys.begin / kTile, (keys.end + kTile - 1) / kTile});
    }
    for (const Interval& run : Normalized(std::move(columns))) tiles += run.length();
  }
  return static_cast<double>(tiles) / ((kRows / kTile) * (kRows / kTile));
}

struct Case {
  const char* name;
  AttentionSpec (*spec)(DataType);
};

void MeasureType(DataType dtype, CpuKernel& kernel, const std::string& path,
                 std::vector<Entry>* entries) {
  constexpr Case kCases[] = {
      {"window 1024", Window}, {"documents", Documents}, {"documents as ranges", Ranges}};
  constexpr int kRepeats = 3, kMasked = 3;
  KernelJobData full(Base(dtype), 1);
  KernelJobData window(Window(dtype), 1), documents(Documents(dtype), 1), ranges(Ranges(dtype), 1);
  KernelJobData* const masked[] = {&window, &documents, &ranges};
  std::vector<double> share[3], rate[3], peaks, full_seconds;
  for (KernelJobData* data : masked) data->Run(kernel);
  for (int i = 0; i < kRepeats; ++i) {
    full_seconds.push_back(full.Run(kernel));
    peaks.push_back(FmaPeakGflops(path, kThreads, 0.2));
    for (int c = 0; c < 3; ++c) {
      std::vector<double> seconds;
      for (int n = 0; n < kMasked; ++n) seconds.push_back(masked[c]->Run(kernel));
      const double once = Summarize(seconds).median;
      share[c].push_back(once / full_seconds.back());
      rate[c].push_back(masked[c]->flops() / once / 1e9);
    }
  }
  const double peak = Summarize(peaks).median;
  const auto add = [&](const std::string& name, const std::vector<double>& rates) {
    Entry entry;
    entry.name = absl::StrCat("masks ", DataTypeName(dtype), " ", name, ", of FMA peak");
    entry.value = Summarize(rates).median;
    entry.unit = "GFLOP/s of visible pairs";
    entry.compared_to = "fp32 FMA peak of the same threads, same run";
    entry.ratio = entry.value / peak;
    entry.ceiling = peak;
    entry.repeats = kRepeats;
    entry.spread = Summarize(rates).spread;
    entries->push_back(entry);
  };
  std::vector<double> full_rates;
  for (const double seconds : full_seconds) full_rates.push_back(full.flops() / seconds / 1e9);
  add("full 64k", full_rates);
  for (int c = 0; c < 3; ++c) {
    const double tiles = TiledShare(masked[c]->mask());
    Entry entry;
    entry.name = absl::StrCat("masks ", DataTypeName(dtype), " ", kCases[c].name, " 64k, time");
    entry.value = Summarize(share[c]).median;
    entry.unit = "of full attention's";
    entry.compared_to = absl::StrCat("share of 64 x 64 tiles with visible pairs, ", tiles);
    entry.ratio = entry.value / tiles;
    entry.higher_is_better = false;
    entry.bar = 1.3;
    entry.ceiling = tiles;
    entry.repeats = kRepeats;
    entry.spread = Summarize(share[c]).spread;
    entries->push_back(entry);
    add(absl::StrCat(kCases[c].name, " 64k"), rate[c]);
  }
}

int Main() {
  CpuKernel::Options options;
  options.threads = kThreads;
  absl::StatusOr<std::unique_ptr<CpuKernel>> kernel = CpuKernel::Create(options);
  if (!kernel.ok()) {
    std::fprintf(stderr, "%s\n", kernel.status().ToString().c_str());
    return 1;
  }
  const std::string path = (*kernel)->Description().substr(std::strlen("cpu/"));
  std::vector<Entry> entries;
  MeasureType(DataType::kFp32, **kernel, path, &entries);
  MeasureType(DataType::kBf16, **kernel, path, &entries);
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
