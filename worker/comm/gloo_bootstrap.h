#ifndef ANNULUS_WORKER_COMM_GLOO_BOOTSTRAP_H_
#define ANNULUS_WORKER_COMM_GLOO_BOOTSTRAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace annulus {

// The bootstrap of one rank: for each peer, an address that only that peer may connect to.
struct GlooBootstrap {
  int32_t rank = 0;
  std::vector<std::string> addresses;  // Indexed by rank; empty at `rank`.
};

std::string EncodeGlooBootstrap(const GlooBootstrap& bootstrap);

// INVALID_ARGUMENT unless `bytes` is the bootstrap of `rank` in a group of `size`.
absl::StatusOr<GlooBootstrap> DecodeGlooBootstrap(absl::string_view bytes, int32_t rank,
                                                  int32_t size);

// Equal on all ranks that connect with the same bootstraps, and different otherwise (64-bit
// FNV-1a).
uint64_t GroupFingerprint(absl::Span<const std::string> bootstraps);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_BOOTSTRAP_H_
