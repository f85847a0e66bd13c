#ifndef ANNULUS_BASE_CPU_LIST_H_
#define ANNULUS_BASE_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// CPUs by number, in the format of Linux: "0-3,8".

// The CPUs in increasing order. INVALID_ARGUMENT: not a list, a number above 1,023 (the largest
// that Linux can name here), or a number given twice.
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);
// The text of `cpus`, which must be in increasing order.
std::string CpuListText(const std::vector<int>& cpus);

// The CPUs on which this thread may run, in increasing order. Empty if Linux allows the thread CPUs
// with numbers above 1,023.
std::vector<int> AllowedCpus();
// The number of CPUs on which this thread may run; at least 1.
int AllowedCpuCount();
// Restricts this thread, and threads that it starts later, to the CPUs. INVALID_ARGUMENT if one of
// them is not allowed.
absl::Status KeepToCpus(const std::vector<int>& cpus);

}  // namespace annulus

#endif  // ANNULUS_BASE_CPU_LIST_H_
