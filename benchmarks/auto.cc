// Compares the choices and predictions of `auto` with measurements over a grid of jobs, on one
// worker and on two. The grid includes small jobs, and few rows over many keys. The time of a job
// is its slowest rank's time in steps. A group job also includes the extra time of nearly empty
// jobs on two workers over one, measured in the same run. The client's transfers do not count,
// because the planner cannot influence them.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attention/planning/choose_execution.h"
#include "attention/spec/parallel_degrees.h"
#include "benchmarks/bench_report.h"
#include "benchmarks/jobs.h"
#include "benchmarks/serve.h"
#include "proto/wire/convert.h"

namespace annulus::bench {
namespace {

struct Heads {
  int32_t q, kv, dim;
};
struct Point {
  std::string name;
  AttentionSpec spec;
};
constexpr int64_t kLengths[] = {128, 1024, 4096, 16384};
constexpr Heads kHeads[] = {{2, 2, 64}, {4, 1, 64}, {2, 1, 128}};
constexpr const char* kMasks[] = {"full", "causal", "window"};
constexpr int64_t kFewRows[] = {1, 4, 16, 64};
constexpr int64_t kManyKeys[] = {4096, 65536, 262144};
constexpr Heads kFewRowHeads[] = {{1, 1, 128}, {8, 8, 64}, {8, 1, 128}};
constexpr double kNear = 1.15, kFactor = 1.5;

AttentionSpec SpecOf(int64_t length, const Heads& heads, int mask) {
  AttentionSpec spec = SelfAttention(DataType::kBf16, length, heads.q, heads.dim, mask > 0);
  spec.kv_heads = heads.kv;
  if (mask == 2) spec.masks[0].window_left = 255;
  return spec;
}

// The executions to compare. On two ranks, ring, rotate and all-gather have the same messages in
// the same steps. With a full mask, layout by area equals another layout.
std::vector<Execution> Ways(const AttentionSpec& spec) {
  std::vector<Layout> layouts = {Layout::kContiguous, Layout::kZigzag};
  if (!spec.masks.empty()) layouts.push_back(Layout::kByArea);
  std::vector<Execution> ways(1);
  ways[0].world_size = 1;
  for (const Strategy strategy :
       {Strategy::kRotateKv, Strategy::kUlysses, Strategy::kRingPassQ, Strategy::kTree}) {
    for (const Layout layout : layouts) {
      Execution open;
      open.strategy = strategy;
      open.layout = layout;
      ways.push_back(ResolveDegrees(open, 2, spec.q_heads).front());
    }
  }
  return ways;
}

std::vector<Point> Grid() {
  std::vector<Point> points;
  for (const int64_t length : kLengths) {
    for (const Heads& heads : kHeads) {
      for (int mask = 0; mask < 3; ++mask) {
        points.push_back(
            {absl::StrCat(length, " ", heads.q, "/", heads.kv, " D", heads.dim, " ", kMasks[mask]),
             SpecOf(length, heads, mask)});
      }
    }
  }
  return points;
}

std::vector<Point> FewRows() {
  std::vector<Point> points;
  for (const DataType dtype : {DataType::kBf16, DataType::kFp32}) {
    for (const int64_t keys : kManyKeys) {
      for (const Heads& heads : kFewRowHeads) {
        if (keys * heads.kv > 8 * kManyKeys[1]) continue;  // Uploads would take too long.
        for (const int64_t rows : kFewRows) {
          AttentionSpec spec = SelfAttention(dtype, keys, heads.q, heads.dim, false);
          spec.kv_heads = heads.kv;
          spec.sequences[0].q_len = rows;
          points.push_back({absl::StrCat(rows, " over ", keys, " ", heads.q, "/", heads.kv, " D",
                                         heads.dim, " ", DataTypeName(dtype)),
                            spec});
        }
      }
    }
  }
  return points;
}

// Jobs in addition to the grid. The first is that of tools/quickstart.
std::vector<Point> Small() {
  return {{"761 12/12 D32 causal fp32", SelfAttention(DataType::kFp32, 761, 12, 32, true)},
          {"128 8/8 D64 causal fp32", SelfAttention(DataType::kFp32, 128, 8, 64, true)},
          {"1024 8/8 D64 causal fp32", SelfAttention(DataType::kFp32, 1024, 8, 64, true)}};
}

// Restricts the benchmark to some key lengths, for example "128,1024", for a machine that is idle
// only for a minute. Empty: all lengths.
std::vector<int64_t> WantedLengths() {
  const char* wanted = std::getenv("ANNULUS_BENCH_LENGTHS");
  std::vector<int64_t> lengths;
  if (wanted == nullptr) return lengths;
  for (const absl::string_view word : absl::StrSplit(wanted, ',')) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(word, &length) || length < 1) {
      std::fprintf(stderr, "bench: ANNULUS_BENCH_LENGTHS: '%s' is no length\n", wanted);
      std::exit(1);
    }
    lengths.push_back(length);
  }
  return lengths;
}

double Seconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleSeconds(DurationFromProto(duration));
}

std::vector<Point> Points() {
  std::vector<Point> points;
  const std::vector<int64_t> lengths = WantedLengths();
  for (std::vector<Point>& list : std::vector<std::vector<Point>>{Small(), Grid(), FewRows()}) {
    for (Point& point : list) {
      const bool wanted = std::count(lengths.begin(), lengths.end(), point.spec.kv_rows()) > 0;
      if (lengths.empty() || wanted) points.push_back(std::move(point));
    }
  }
  return points;
}

bool Within(double factor) { return factor <= kFactor && factor >= 1 / kFactor; }

struct Tally {
  int points = 0, near = 0, runs = 0, within = 0, within_before = 0;
  std::vector<double> regret, factor, factor_before;
};

template <typename T>
T Checked(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "bench: %s\n", value.status().ToString().c_str());
  std::exit(1);
}

v1::Plan PlanOf(Client* client, const AttentionSpec& spec, const Execution& execution) {
  return Checked(client->Plan(spec, execution, absl::Seconds(30)));
}

// The extra time of a job outside its steps on two workers, compared with one.
double MeasureGroupSeconds(Client* client) {
  constexpr int kRepeats = 301, kWarmUp = 50;
  BenchJob job(SelfAttention(DataType::kBf16, 2, 1, 8, false));
  std::vector<double> beside[2];
  for (int i = 0; i < kWarmUp + kRepeats; ++i) {
    for (const int32_t world : {1, 2}) {
      Execution execution;
      execution.world_size = world;
      v1::JobStats stats;
      const double all = TimeOnce([&] { stats = job.Run(client, execution, DataPath::kDirect); });
      if (i >= kWarmUp) beside[world - 1].push_back(all - Seconds(stats.running()));
    }
  }
  const double more = Summarize(beside[1]).median - Summarize(beside[0]).median;
  std::fprintf(stderr, "a group job takes %.3f ms more beside its steps, the model says %.3f\n",
               more * 1e3, Rates().job_seconds * 1e3);
  return std::max(0.0, more);
}

void MeasurePoint(Client* client, const Point& point, double group_seconds, Tally* tally) {
  const AttentionSpec& spec = point.spec;
  BenchJob job(spec);
  const v1::Plan chosen = PlanOf(client, spec, {});
  std::vector<Execution> ways = Ways(spec);
  ways.push_back(Checked(ExecutionFromProto(chosen.execution(), "execution")));
  // Short jobs depend on the system's scheduler, so they are repeated more often.
  const int64_t rows = std::max(spec.q_rows(), spec.kv_rows());
  const int repeats = rows <= 1024 ? 31 : rows <= 4096 ? 11 : 3;
  std::vector<std::vector<double>> samples(ways.size());
  // Predictions before the first run of this job. Other jobs of the same length may have run.
  std::vector<double> before;
  for (const Execution& way : ways)
    before.push_back(Seconds(PlanOf(client, spec, way).predicted_time()));
  for (int i = 0; i <= repeats; ++i) {
    for (size_t w = 0; w < ways.size(); ++w) {
      const v1::JobStats stats = job.Run(client, ways[w], DataPath::kDirect);
      const double extra = ways[w].world_size > 1 ? group_seconds : 0;
      if (i > 0) samples[w].push_back(Seconds(stats.running()) + extra);
    }
  }
  std::vector<double> measured;
  for (const std::vector<double>& sample : samples) measured.push_back(Summarize(sample).median);
  const double best = *std::min_element(measured.begin(), measured.end());
  // If the chosen execution is on the list, it was measured twice. The better value counts, for a
  // fair comparison with the best of the list.
  double of_chosen = measured.back();
  for (size_t w = 0; w + 1 < ways.size(); ++w) {
    const bool same = ways[w].world_size == ways.back().world_size &&
                      (ways[w].world_size == 1 || (ways[w].strategy == ways.back().strategy &&
                                                   ways[w].layout == ways.back().layout));
    if (same) of_chosen = std::min(of_chosen, measured[w]);
  }
  ++tally->points;
  tally->near += of_chosen <= kNear * best ? 1 : 0;
  tally->regret.push_back(of_chosen / best);
  std::fprintf(stderr, "%-24s chosen %s %s W%d: %.3f of the best\n", point.name.c_str(),
               std::string(StrategyName(ways.back().strategy)).c_str(),
               std::string(LayoutName(ways.back().layout)).c_str(), ways.back().world_size,
               of_chosen / best);
  for (size_t w = 0; w + 1 < ways.size(); ++w) {
    const double predicted = Seconds(PlanOf(client, spec, ways[w]).predicted_time());
    const double factor = predicted / measured[w], factor_before = before[w] / measured[w];
    ++tally->runs;
    tally->within += Within(factor) ? 1 : 0;
    tally->within_before += Within(factor_before) ? 1 : 0;
    tally->factor.push_back(factor);
    tally->factor_before.push_back(factor_before);
    std::fprintf(
        stderr, "    %-14s %-10s W%d measured %8.3f ms, predicted / measured %.2f, before %.2f%s\n",
        std::string(StrategyName(ways[w].strategy)).c_str(),
        std::string(LayoutName(ways[w].layout)).c_str(), ways[w].world_size, measured[w] * 1e3,
        factor, factor_before, Within(factor) ? "" : " MISSED");
  }
}

Entry Share(const std::string& name, int part, int whole, const std::string& what, double bar) {
  Entry entry;
  entry.name = name;
  entry.value = part;
  entry.unit = absl::StrCat("of ", whole);
  entry.compared_to = what;
  entry.ratio = static_cast<double>(part) / std::max(1, whole);
  entry.bar = bar;
  entry.ceiling = whole;
  return entry;
}

Entry Median(const std::string& name, std::vector<double> factors) {
  std::sort(factors.begin(), factors.end());
  Entry entry;
  entry.name = name;
  entry.value = factors[factors.size() / 2];
  entry.unit = absl::StrCat("(", factors.front(), " to ", factors.back(), ")");
  return entry;
}

int Main() {
  const Serve serve(2, {"--threads", "1"});
  Client client(OptionsFor(serve));
  const double group_seconds = MeasureGroupSeconds(&client);
  Tally tally;
  const std::vector<Point> points = Points();
  if (points.empty()) {
    std::fprintf(stderr, "bench: no job of the list has keys of ANNULUS_BENCH_LENGTHS\n");
    return 1;
  }
  for (const Point& point : points) MeasurePoint(&client, point, group_seconds, &tally);
  Entry unseen = Share("auto: predicted before the job's first run within a factor of 1.5",
                       tally.within_before, tally.runs, "jobs x ways to run them", 1.0);
  Entry regret;
  regret.name = "auto: chosen / best, largest";
  regret.value = *std::max_element(tally.regret.begin(), tally.regret.end());
  regret.higher_is_better = false;
  regret.ceiling = 1;
  std::puts(ToJson({Share("auto: chosen within 1.15 of the best measured", tally.near, tally.points,
                          "jobs of the list", 0.9),
                    regret,
                    Share("auto: predicted within a factor of 1.5", tally.within, tally.runs,
                          "jobs x ways to run them", 1.0),
                    Median("auto: predicted / measured, median", tally.factor), unseen,
                    Median("auto: the same before the job's first run", tally.factor_before)})
                .c_str());
  return 0;
}

}  // namespace
}  // namespace annulus::bench

int main() { return annulus::bench::Main(); }
