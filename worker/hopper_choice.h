#ifndef ANNULUS_WORKER_HOPPER_CHOICE_H_
#define ANNULUS_WORKER_HOPPER_CHOICE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/run_child.h"

namespace annulus {

// Whether a GPU's jobs go by the kernel for sm_90a where it serves them. It is checked in a process
// of its own, because a kernel that hangs can be ended in no other way.

// What that process says at its end where all is well, and how long it may take. It loads CUDA,
// and computes seconds on the CPU.
inline constexpr char kHopperPassed[] = "passed";
inline constexpr absl::Duration kHopperCheckTime = absl::Minutes(1);

// Empty: it has passed. Else what it did, in one line: "failed its check: …", "crashed in its check
// (signal 11)", "hung in its check", "was not checked: …".
std::string HopperVerdict(const ChildEnd& end);

struct HopperChoice {
  bool on = false;
  // Why it is off although the GPU has it and nobody asked for that: HopperVerdict.
  std::string verdict;

  // Of the engine's description: "cuda/wgmma+mma", and " (hopper failed its check)" or nothing.
  std::string kernels() const;
  std::string note() const;
};

// `asked`: "auto" (where it passes its check, else the portable kernel serves), "portable", or
// "hopper" (that or none). `sm_90`: what the GPU is. `check` is called where its answer decides.
// What came of that is one line of the log. FAILED_PRECONDITION for "hopper" on another GPU, or
// where it does not pass.
absl::StatusOr<HopperChoice> ChooseHopper(const std::string& asked, bool sm_90,
                                          const std::function<ChildEnd()>& check);

}  // namespace annulus

#endif  // ANNULUS_WORKER_HOPPER_CHOICE_H_
