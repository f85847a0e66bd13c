#ifndef ANNULUS_BASE_RUN_CHILD_H_
#define ANNULUS_BASE_RUN_CHILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace annulus {

struct ChildEnd {
  enum class Kind : uint8_t {
    kExited,      // `code` is its exit code.
    kSignal,      // `code` is the signal that ended it.
    kLate,        // The limit passed, and it was killed.
    kNotStarted,  // `code` is errno. ECHILD: it ran, but another thread reaped it.
  };
  Kind kind = Kind::kNotStarted;
  int code = 0;
  std::string output;  // The first 4 KiB of its standard output.
};

// Runs `command[0]` with the arguments that follow, for at most `limit`, and returns how it ended.
// The child's standard input is empty, it shares the standard error of this process, and no signal
// is blocked in it. If this process ignores SIGCHLD, perhaps inherited from its parent, SIGCHLD is
// set to its default. Blocks until the child has ended. It waits at most 2 s for a child that it
// has killed: a driver may keep the process alive, which is then left behind. Any thread.
ChildEnd RunChild(const std::vector<std::string>& command, absl::Duration limit);

}  // namespace annulus

#endif  // ANNULUS_BASE_RUN_CHILD_H_
