#ifndef ANNULUS_TESTS_GPU_FIGURE_FILE_H_
#define ANNULUS_TESTS_GPU_FIGURE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace annulus {

// Repeats of a forward pass over so many rows: those of long ones differ by a fiftieth at most, and
// take most of a measurement's time.
int RepeatsOf(int64_t length);

// Figures as a JSON array in a file that is whole whenever the process is killed.
class FigureFile {
 public:
  // Without a path they are kept only.
  explicit FigureFile(std::string path);

  // Says it, with the seconds since the figure before, and puts the file with it in the place of
  // the one without.
  absl::Status Add(bench::Entry entry);

  const std::vector<bench::Entry>& entries() const { return entries_; }

 private:
  const std::string path_;
  absl::Time before_;
  std::vector<bench::Entry> entries_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_FIGURE_FILE_H_
