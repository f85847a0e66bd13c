#ifndef ANNULUS_BENCHMARKS_READ_RATE_H_
#define ANNULUS_BENCHMARKS_READ_RATE_H_

#include <cstddef>

#include "absl/types/span.h"

namespace annulus::bench {

// The roof of work that reads much and computes little: bytes per second at which `threads` threads
// read `memory` once, each its own contiguous part.
double ReadBytesPerSecond(absl::Span<const std::byte> memory, int threads);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_READ_RATE_H_
