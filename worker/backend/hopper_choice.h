#ifndef ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_
#define ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/spec/spec.h"
#include "base/run_child.h"

namespace annulus {

// Whether a GPU's jobs go by the kernels for sm_90a where these serve them: that of attention, and
// that of gradients, which is asked of where the first serves. Each is checked in a process of its
// own, because a kernel that hangs can be ended in no other way.

// What such a process says at its end where all is well, and how long each may take. It loads CUDA,
// and computes seconds on the CPU.
inline constexpr char kHopperPassed[] = "passed";
inline constexpr absl::Duration kHopperCheckTime = absl::Seconds(30);

// Empty: it has passed. Else what it did, in one line: "failed its check: …", "crashed in its check
// (signal 11)", "hung in its check", "was not checked: …".
std::string HopperVerdict(const ChildEnd& end);

struct HopperChoice {
  bool on = false, gradients = false;
  // Why one is off although the GPU has it and nobody asked for that: HopperVerdict.
  std::string verdict, gradients_verdict;

  // Of the engine's description: "cuda/wgmma+mma", and " (hopper failed its check)", " (hopper
  // gradients failed its check)" or nothing.
  std::string kernels() const;
  std::string note() const;
};

// `asked`: "auto" (what passes its check, else the portable kernel serves), "portable", or "hopper"
// (both or none). `sm_90`: what the GPU is. `check` is called where its answer decides. What came
// of each call is one line of the log. FAILED_PRECONDITION for "hopper" on another GPU, or where
// one does not pass.
using HopperCheck = std::function<ChildEnd(Operation)>;
absl::StatusOr<HopperChoice> ChooseHopper(const std::string& asked, bool sm_90,
                                          const HopperCheck& check);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_HOPPER_CHOICE_H_
