#ifndef ANNULUS_BASE_CPU_LIST_H_
#define ANNULUS_BASE_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// CPUs by their numbers, as Linux lists them: "0-3,8".

// Increasing. INVALID_ARGUMENT: no list, a number past what Linux can name (1,023), or one twice.
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);
std::string CpuListText(const std::vector<int>& cpus);

// Those that this thread may run on; none where Linux has numbers past 1,023 for them.
std::vector<int> AllowedCpus();
// How many, at least 1.
int AllowedCpuCount();
// Keeps this thread, and those that it starts from now on, to the CPUs. INVALID_ARGUMENT where one
// of them is not allowed.
absl::Status KeepToCpus(const std::vector<int>& cpus);

}  // namespace annulus

#endif  // ANNULUS_BASE_CPU_LIST_H_
