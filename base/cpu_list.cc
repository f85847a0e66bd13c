#include "base/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace annulus {
namespace {

absl::Status NoList(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a list of CPUs such as 0-3,8"));
}

// Parses "3" or "0-3".
bool ParseRange(absl::string_view text, int* first, int* last) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  return absl::SimpleAtoi(ends.front(), first) && absl::SimpleAtoi(ends.back(), last) &&
         0 <= *first && *first <= *last && *last < CPU_SETSIZE;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text) {
  std::set<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int first = 0, last = 0;
    if (!ParseRange(part, &first, &last)) return NoList(text);
    for (int cpu = first; cpu <= last; ++cpu) {
      if (!cpus.insert(cpu).second) {
        return absl::InvalidArgumentError(absl::StrCat("'", text, "' has CPU ", cpu, " twice"));
      }
    }
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t next = i + 1;
    while (next < cpus.size() && cpus[next] == cpus[next - 1] + 1) ++next;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (next - i > 1) absl::StrAppend(&text, "-", cpus[next - 1]);
    i = next;
  }
  return text;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

int AllowedCpuCount() {
  const size_t cpus = AllowedCpus().size();
  return static_cast<int>(cpus > 0 ? cpus : std::max(1u, std::thread::hardware_concurrency()));
}

absl::Status KeepToCpus(const std::vector<int>& cpus) {
  const std::vector<int> allowed = AllowedCpus();
  if (!std::includes(allowed.begin(), allowed.end(), cpus.begin(), cpus.end())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "CPUs ", CpuListText(cpus), " are not all among the usable CPUs ", CpuListText(allowed)));
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("CPUs ", CpuListText(cpus), ": ", std::strerror(errno)));
}

}  // namespace annulus
