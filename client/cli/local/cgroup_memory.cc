#include "client/cli/local/cgroup_memory.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace annulus {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// The number in a file. No limit if the file has "max" or does not exist.
int64_t LimitIn(const std::string& file) {
  std::string text;
  int64_t bytes = 0;
  std::getline(std::ifstream(file), text);
  return absl::SimpleAtoi(text, &bytes) && bytes > 0 ? bytes : kNone;
}

// The smallest limit of a cgroup and its ancestors. In a container, `path` may be the host's path,
// of which only the top is mounted: as the container's own cgroup.
int64_t LeastAbove(const std::string& mount, absl::string_view path, const char* file) {
  int64_t least = LimitIn(absl::StrCat(mount, "/", file));
  // The path is outside of the mounted part.
  if (absl::StrContains(path, "..")) return least;
  while (absl::StartsWith(path, "/") && path.size() > 1) {
    least = std::min(least, LimitIn(absl::StrCat(mount, path, "/", file)));
    path = path.substr(0, path.rfind('/'));
  }
  return least;
}

bool HasMemory(absl::string_view controllers) {
  const std::vector<absl::string_view> names = absl::StrSplit(controllers, ',');
  return std::find(names.begin(), names.end(), "memory") != names.end();
}

}  // namespace

int64_t CgroupMemoryBytes(const std::string& root) {
  const std::string mounted = absl::StrCat(root, "sys/fs/cgroup");
  std::ifstream file(absl::StrCat(root, "proc/self/cgroup"));
  int64_t least = kNone;
  // Each line is ID:CONTROLLERS:PATH.
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) {
      least = std::min(least, LeastAbove(mounted, parts[2], "memory.max"));
    } else if (HasMemory(parts[1])) {
      const std::string mount = absl::StrCat(mounted, "/memory");
      least = std::min(least, LeastAbove(mount, parts[2], "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace annulus
