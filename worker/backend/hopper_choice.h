#ifndef ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_
#define ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"
#include "base/run_child.h"

namespace annulus {

// Decides whether a GPU uses the sm_90a kernels, for attention and for gradients. Gradients are
// considered only if attention uses them. Each kernel is checked in its own process, because only
// the end of the process can stop a kernel that hangs.

// The output of a checking process that succeeds, and its time limit. The process loads CUDA and
// computes for seconds on the CPU.
inline constexpr char kHopperPassed[] = "passed";
inline constexpr absl::Duration kHopperCheckTime = absl::Seconds(30);

// Empty: passed. Otherwise one line: "failed its check: …", "crashed in its check (signal 11)",
// "hung in its check" or "was not checked: …".
std::string HopperVerdict(const ChildEnd& end);

struct HopperChoice {
  bool on = false, gradients = false;
  // HopperVerdict, if the kernel is off although the GPU has it and the user did not disable it.
  std::string verdict, gradients_verdict;

  // Parts of the engine's description: "cuda/wgmma+mma"; and " (hopper failed its check)", "
  // (hopper gradients failed its check)" or empty.
  std::string kernels() const;
  std::string note() const;
};

// `asked`: "auto" (kernels that pass their check are used), "portable" (none), or "hopper" (both
// kernels must pass). `sm_90`: True if the GPU has compute capability 9.0. `check` is called only
// if its result matters; each result is one log line. FAILED_PRECONDITION: "hopper" on another GPU,
// or a kernel does not pass.
using HopperCheck = std::function<ChildEnd(Operation)>;
absl::StatusOr<HopperChoice> ChooseHopper(const std::string& asked, bool sm_90,
                                          const HopperCheck& check);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_
