#ifndef ANNULUS_BENCHMARKS_BENCH_REPORT_H_
#define ANNULUS_BENCHMARKS_BENCH_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace annulus::bench {

// One measured figure, as `tools/bench` shows it. What it is compared to and its ceiling are
// measured in the same run.
struct Entry {
  std::string name;
  double value = 0;
  std::string unit;
  // What `ratio` is against, in words; empty when the value stands alone.
  std::string compared_to;
  std::optional<double> ratio;
  // Which direction of `ratio` (of `value` where there is no ratio) is good.
  bool higher_is_better = true;
  // The bound that the project sets itself for `ratio`; and the best `value` that is possible, in
  // its unit.
  std::optional<double> bar;
  std::optional<double> ceiling;
  // Measurements behind `value`, and (largest - smallest) / median of them.
  int repeats = 1;
  double spread = 0;
};

// Median and spread of measurements; `samples` is not empty.
struct Summary {
  double median = 0;
  double spread = 0;
};
Summary Summarize(std::vector<double> samples);

// Repeats of something and of its roof, in turns: the entry with both medians and that of the
// ratios. Name, bar and what it is compared to are the caller's.
Entry EntryOfRounds(const std::vector<double>& values, const std::vector<double>& roofs);
// A line about it on standard error.
void Say(const Entry& entry);

// The entries as a JSON array, which a benchmark prints on standard output and nothing else; `met`
// is derived. Text for a person goes to standard error.
std::string ToJson(const std::vector<Entry>& entries);

// `value` from the only arguments that a program takes, `flag` N, where they are given. False, with
// a line on standard error, at any others or where N is below `least`.
bool ReadOnlyFlag(int argc, const char* const* argv, const char* flag, int64_t least,
                  int64_t* value);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_BENCH_REPORT_H_
