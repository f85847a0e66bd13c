#include "base/malloc_retention.h"

#include <malloc.h>

namespace annulus {

void RetainFreedMemory() {
  constexpr int kKept = 16 << 20, kOwnMapping = 8 << 20;
  mallopt(M_TRIM_THRESHOLD, kKept);
  // Setting the trim threshold would otherwise fix this one at 128 KiB.
  mallopt(M_MMAP_THRESHOLD, kOwnMapping);
}

}  // namespace annulus
