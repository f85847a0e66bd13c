#ifndef ANNULUS_TESTS_GPU_FIGURE_FILE_H_
#define ANNULUS_TESTS_GPU_FIGURE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "benchmarks/bench_report.h"

namespace annulus {

// Figures as a JSON array in a file that is complete even if the process is killed.
class FigureFile {
 public:
  explicit FigureFile(std::string path);

  // Prints the entry with the seconds since the last one, and atomically replaces the file.
  absl::Status Add(bench::Entry entry);

 private:
  const std::string path_;
  absl::Time before_;
  std::vector<bench::Entry> entries_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_FIGURE_FILE_H_
