#include "tests/gpu/figure_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace annulus {

FigureFile::FigureFile(std::string path) : path_(std::move(path)), before_(absl::Now()) {}

absl::Status FigureFile::Add(bench::Entry entry) {
  bench::Say(entry);
  const absl::Time now = absl::Now();
  std::fprintf(stderr, "%.1f s for %s\n", absl::ToDoubleSeconds(now - before_), entry.name.c_str());
  before_ = now;
  entries_.push_back(std::move(entry));
  const std::string next = path_ + ".new";
  std::ofstream file(next);
  file << bench::ToJson(entries_) << "\n";
  file.close();
  if (!file || std::rename(next.c_str(), path_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  }
  return absl::OkStatus();
}

}  // namespace annulus
