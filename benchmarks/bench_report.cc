#include "benchmarks/bench_report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "nlohmann/json.hpp"

namespace annulus::bench {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json Met(const Entry& entry) {
  if (!entry.bar) return nullptr;
  const double judged = entry.ratio.value_or(entry.value);
  return entry.higher_is_better ? judged >= *entry.bar : judged <= *entry.bar;
}

}  // namespace

Summary Summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  const double spread = median != 0 ? (samples.back() - samples.front()) / median : 0;
  return {median, spread};
}

Entry EntryOfRounds(const std::vector<double>& values, const std::vector<double>& roofs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / roofs[i]);
  const Summary ratio = Summarize(ratios);
  Entry entry;
  entry.value = Summarize(values).median;
  entry.ratio = ratio.median;
  entry.ceiling = Summarize(roofs).median;
  entry.repeats = static_cast<int>(values.size());
  entry.spread = ratio.spread;
  return entry;
}

void Say(const Entry& entry) {
  std::fprintf(stderr, "%-60s %7.1f %s  %.3f (spread %.3f)\n", entry.name.c_str(), entry.value,
               entry.unit.c_str(), entry.ratio.value_or(0), entry.spread);
}

std::string ToJson(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) {
    list.push_back({{"name", entry.name},
                    {"value", entry.value},
                    {"unit", entry.unit},
                    {"compared_to", entry.compared_to},
                    {"ratio", OrNull(entry.ratio)},
                    {"better", entry.higher_is_better ? "higher" : "lower"},
                    {"bar", OrNull(entry.bar)},
                    {"met", Met(entry)},
                    {"ceiling", OrNull(entry.ceiling)},
                    {"repeats", entry.repeats},
                    {"spread", entry.spread}});
  }
  return list.dump(2);
}

bool ReadOnlyFlag(int argc, const char* const* argv, const char* flag, int64_t least,
                  int64_t* value) {
  if (argc == 1) return true;
  if (argc == 3 && std::string(argv[1]) == flag && absl::SimpleAtoi(argv[2], value) &&
      *value >= least) {
    return true;
  }
  std::fprintf(stderr, "the only argument is %s N, with N of at least %lld\n", flag,
               static_cast<long long>(least));
  return false;
}

}  // namespace annulus::bench
