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

// Runs both kernels on a few small jobs with constant inputs: forward and backward, in every type,
// plain and with all modifiers. Takes milliseconds. `device`: the device of `kernel`; nullptr: the
// host, which the yardstick always uses. INTERNAL, with the job and the tensor, if results differ
// by more than the types' rounding or if `kernel` fails.
absl::Status CheckKernel(AttentionKernel& kernel, AttentionKernel& yardstick,
                         Device* device = nullptr);

// Like CheckKernel, for one forward job. Requires: `spec` is valid.
absl::Status CheckForward(const AttentionSpec& spec, AttentionKernel& kernel,
                          AttentionKernel& yardstick, Device* device = nullptr);

// Like CheckForward, and then the gradients of the job from its outputs.
absl::Status CheckGradients(const AttentionSpec& spec, AttentionKernel& kernel,
                            AttentionKernel& yardstick, Device* device = nullptr);

// Like CheckKernel, for every kernel that a GPU selects by head dimension and modifiers. Takes tens
// of milliseconds of the yardstick. Skips shapes that `kernel` does not serve; fails if it serves
// none of a type, because then nothing was compared.
absl::Status CheckKernelsByShape(AttentionKernel& kernel, AttentionKernel& yardstick,
                                 Device* device = nullptr);

// Like CheckKernel, for forward passes in the 16-bit types whose inputs have NaN, infinities and
// numbers whose products overflow. In one job, a row has scores of −infinity with all its first
// keys. NaN must be exactly where the yardstick has it.
absl::Status CheckNonfinite(AttentionKernel& kernel, AttentionKernel& yardstick,
                            Device* device = nullptr);

// Like CheckForward, for Arithmetic::kBf16x3 against the yardstick's fp32.
absl::Status CheckBf16x3(AttentionKernel& kernel, AttentionKernel& yardstick);

// A path of the CPU kernel that has passed its check.
struct CheckedPath {
  const TileIsa* isa = nullptr;
  // For each faster path that failed: "amx failed its check".
  std::vector<std::string> passed_over;
};

// Returns the first of `candidates` (fastest first) that agrees with the portable path. The jobs
// also cover hidden NaN, few rows over many keys, whole blocks of keys, and additional types that
// the path serves. The portable path is the last resort. Logs each path that fails. INTERNAL: none
// passes.
absl::StatusOr<CheckedPath> FirstSoundPath(absl::Span<const TileIsa* const> candidates);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_SELF_CHECK_H_
