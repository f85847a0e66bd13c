// Masked jobs compared with full attention over the same rows, by the executor's time in steps: the
// time should be proportional to the visible pairs. On one worker of two threads, and on two
// workers of one.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/fma_peak.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "proto/wire/convert.h"

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

// 64 to 8,191 rows each, mostly short, kRows in total.
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

// The same masks as a range list over one sequence.
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

// The fraction of all pairs that are in 64 × 64 tiles with a visible pair.
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
constexpr Case kCases[] = {
    {"window 1024", Window}, {"documents", Documents}, {"documents as ranges", Ranges}};

// Counts both products of visible pairs.
double Flops(const AttentionSpec& spec) {
  return 4.0 * static_cast<double>(MaskMap(spec).Area(0, {0, kRows}, {0, kRows})) * spec.head_dim;
}

// Seconds in the executor's steps, for the slowest rank.
double ExecutorSeconds(Client* client, BenchJob* job) {
  const v1::JobStats stats = job->Run(client, {}, DataPath::kDirect);
  return absl::ToDoubleSeconds(DurationFromProto(stats.running()));
}

Entry OfPeak(const std::string& name, const std::vector<double>& rates, double peak) {
  Entry entry;
  entry.name = absl::StrCat(name, ", of FMA peak");
  entry.value = Summarize(rates).median;
  entry.unit = "GFLOP/s of visible pairs";
  entry.compared_to = "fp32 FMA peak of the same threads, same run";
  entry.ratio = entry.value / peak;
  entry.ceiling = peak;
  entry.repeats = static_cast<int>(rates.size());
  entry.spread = Summarize(rates).spread;
  return entry;
}

Entry OfTiles(const std::string& name, const std::vector<double>& shares, double tiles) {
  Entry entry;
  entry.name = absl::StrCat(name, ", time in steps");
  entry.value = Summarize(shares).median;
  entry.unit = "of full attention's";
  entry.compared_to = absl::StrCat("share of 64 x 64 tiles with visible pairs, ", tiles);
  entry.ratio = entry.value / tiles;
  entry.higher_is_better = false;
  entry.bar = 1.3;
  entry.ceiling = tiles;
  entry.repeats = static_cast<int>(shares.size());
  entry.spread = Summarize(shares).spread;
  return entry;
}

void MeasureType(DataType dtype, int workers, std::vector<Entry>* entries) {
  constexpr int kRepeats = 3, kMasked = 3;
  const Serve serve(workers, {"--threads", absl::StrCat(kThreads / workers)});
  Client client(OptionsFor(serve));
  BenchJob full(Base(dtype));
  const double full_flops = Flops(full.spec());
  const std::string backend = full.Run(&client, {}, DataPath::kDirect).backend();
  const std::string path = backend.substr(4, backend.find(' ') - 4);  // Parses "cpu/PATH + gloo".
  std::vector<std::unique_ptr<BenchJob>> masked;
  for (const Case& c : kCases) {
    masked.push_back(std::make_unique<BenchJob>(c.spec(dtype)));
    ExecutorSeconds(&client, masked.back().get());  // Touches all memory once.
  }
  std::vector<std::vector<double>> shares(masked.size()), rates(masked.size());
  std::vector<double> peaks, full_rates;
  for (int i = 0; i < kRepeats; ++i) {
    const double full_seconds = ExecutorSeconds(&client, &full);
    full_rates.push_back(full_flops / full_seconds / 1e9);
    peaks.push_back(FmaPeakGflops(path, kThreads, 0.2));
    for (size_t c = 0; c < masked.size(); ++c) {
      std::vector<double> seconds;
      for (int n = 0; n < kMasked; ++n) {
        seconds.push_back(ExecutorSeconds(&client, masked[c].get()));
      }
      const double once = Summarize(seconds).median;
      shares[c].push_back(once / full_seconds);
      rates[c].push_back(Flops(masked[c]->spec()) / once / 1e9);
    }
  }
  const double peak = Summarize(peaks).median;
  const std::string of = absl::StrCat("masks ", DataTypeName(dtype), " W=", workers, " ");
  entries->push_back(OfPeak(of + "full 64k", full_rates, peak));
  for (size_t c = 0; c < masked.size(); ++c) {
    const std::string name = absl::StrCat(of, kCases[c].name, " 64k");
    entries->push_back(OfTiles(name, shares[c], TiledShare(MaskMap(masked[c]->spec()))));
    entries->push_back(OfPeak(name, rates[c], peak));
  }
}

int Main() {
  std::vector<Entry> entries;
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const int workers : {1, 2}) MeasureType(dtype, workers, &entries);
  }
  for (const Entry& entry : entries) Say(entry);
  std::puts(ToJson(entries).c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
