#ifndef ANNULUS_WORKER_BACKEND_SELF_CHECK_H_
#define ANNULUS_WORKER_BACKEND_SELF_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "attention/spec/spec.h"
#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Runs both kernels on a few small jobs whose inputs never change, forward and backward in every
// type, plain and with all modifiers, in milliseconds. INTERNAL, with the job and the tensor, where
// what they give is further apart than their types explain, or where `kernel` fails.
// `device`: that of `kernel`; nullptr: the host, as the yardstick's.
absl::Status CheckKernel(AttentionKernel& kernel, AttentionKernel& yardstick,
                         Device* device = nullptr);

// One forward job: `spec` is valid.
absl::Status CheckForward(const AttentionSpec& spec, AttentionKernel& kernel,
                          AttentionKernel& yardstick, Device* device = nullptr);

// One forward job, and the gradients of it by what it gave.
absl::Status CheckGradients(const AttentionSpec& spec, AttentionKernel& kernel,
                            AttentionKernel& yardstick, Device* device = nullptr);

// The same of every kernel that a GPU chooses from by head dimensions and modifiers, in tens of
// milliseconds of the yardstick. Shapes that `kernel` says it does not serve are passed over, but
// it fails where it serves none of a type, as then nothing has been compared.
absl::Status CheckKernelsByShape(AttentionKernel& kernel, AttentionKernel& yardstick,
                                 Device* device = nullptr);

// The same of a forward pass whose inputs hold NaN, infinities and numbers whose products are out
// of range, in each 16-bit type, −infinity with all of a row's first keys among them: NaN where the
// yardstick has it, and nowhere else.
absl::Status CheckNonfinite(AttentionKernel& kernel, AttentionKernel& yardstick,
                            Device* device = nullptr);

// The same of Arithmetic::kBf16x3, against the yardstick's fp32.
absl::Status CheckBf16x3(AttentionKernel& kernel, AttentionKernel& yardstick);

// A path of the CPU kernel that has passed the check.
struct CheckedPath {
  const TileIsa* isa = nullptr;
  // "amx failed its check": of each faster path that did not.
  std::vector<std::string> passed_over;
};

// Of `candidates`, fastest first, the first that agrees with the portable path, which is the last
// resort, also around NaN that is hidden, in few rows over many keys, in whole blocks of keys and
// in what types it adds; each that does not is said in the log. INTERNAL where none does.
absl::StatusOr<CheckedPath> FirstSoundPath(absl::Span<const TileIsa* const> candidates);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_SELF_CHECK_H_
