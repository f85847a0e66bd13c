#ifndef ANNULUS_BENCHMARKS_BENCH_REPORT_H_
#define ANNULUS_BENCHMARKS_BENCH_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace annulus::bench {

// One measured figure, as `tools/bench` prints it. Its comparison and its ceiling are measured in
// the same run.
struct Entry {
  std::string name;
  double value = 0;
  std::string unit;
  // The comparison of `ratio`, in words. Empty if there is no comparison.
  std::string compared_to;
  std::optional<double> ratio;
  // True if a higher `ratio` is better (a higher `value` if there is no ratio).
  bool higher_is_better = true;
  // The limit that the project sets for `ratio`, and the best possible `value`, in its unit.
  std::optional<double> bar;
  std::optional<double> ceiling;
  // The number of measurements of `value`, and their (largest - smallest) / median.
  int repeats = 1;
  double spread = 0;
};

// Median and spread. Requires: `samples` is not empty.
struct Summary {
  double median = 0;
  double spread = 0;
};
Summary Summarize(std::vector<double> samples);

// The entry of repeated measurements that alternate with their roof: the medians of both and of
// their ratio. The caller sets name, bar and comparison.
Entry EntryOfRounds(const std::vector<double>& values, const std::vector<double>& roofs);
// Prints a line about the entry on standard error.
void Say(const Entry& entry);

// The entries as a JSON array, the only output of a benchmark on standard output; derives `met`.
// Text for people goes to standard error.
std::string ToJson(const std::vector<Entry>& entries);

// Reads the only arguments of a program, `flag` N, into `value` if they are given. False, with a
// line on standard error, for other arguments or N < `least`.
bool ReadOnlyFlag(int argc, const char* const* argv, const char* flag, int64_t least,
                  int64_t* value);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_BENCH_REPORT_H_
