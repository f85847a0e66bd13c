#ifndef ANNULUS_WORKER_KERNEL_CPU_ISA_ISA_DISPATCH_H_
#define ANNULUS_WORKER_KERNEL_CPU_ISA_ISA_DISPATCH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Returns the paths that this CPU and its operating system can run, fastest first. "portable" is
// always the last.
std::vector<const TileIsa*> AvailableIsas();

// Returns the path called `name`: "amx", "avx512bf16", "avx512", "avx2", "portable", or "auto" for
// the fastest. Errors: INVALID_ARGUMENT for an unknown name; FAILED_PRECONDITION for a path that
// this CPU lacks.
absl::StatusOr<const TileIsa*> SelectIsa(absl::string_view name);

// The CPU's model name, for logs and figures; "unknown CPU" if it has none.
std::string CpuModel();

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ISA_ISA_DISPATCH_H_
