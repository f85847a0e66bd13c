#include "proto/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace annulus {

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // ISA-L counts bytes in an int.
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t state = ~crc;  // ISA-L leaves the standard's first and last inversion to its caller.
  while (size > 0) {
    const size_t part = std::min(size, kMostAtOnce);
    state = crc32_iscsi(bytes, static_cast<int>(part), state);
    bytes += part;
    size -= part;
  }
  return ~state;
}

}  // namespace annulus
