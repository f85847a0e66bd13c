#ifndef ANNULUS_BASE_RUN_CHILD_H_
#define ANNULUS_BASE_RUN_CHILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace annulus {

struct ChildEnd {
  enum class Kind : uint8_t {
    kExited,      // `code`: its exit code.
    kSignal,      // A signal ended it: `code`.
    kLate,        // The time was up. It was killed.
    kNotStarted,  // `code`: errno; ECHILD: it ran, and another thread took its end.
  };
  Kind kind = Kind::kNotStarted;
  int code = 0;
  std::string output;  // The first 4 KiB of its standard output.
};

// Runs a program, `command[0]` with arguments, until it ends, for `limit` at most. It reads
// nothing, shares this process's standard error, and has no signal blocked. Where this process
// ignores SIGCHLD, as whoever started it may have left it, that gets its default. Blocks; what a
// killed child that a driver holds on to leaves behind is not waited for. Any thread.
ChildEnd RunChild(const std::vector<std::string>& command, absl::Duration limit);

}  // namespace annulus

#endif  // ANNULUS_BASE_RUN_CHILD_H_
