#ifndef ANNULUS_WORKER_KERNEL_CPU_FETCH_ROWS_H_
#define ANNULUS_WORKER_KERNEL_CPU_FETCH_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace annulus {

// Prefetches the cache lines of `count` rows of `bytes` bytes, `stride` bytes apart. With many
// heads, rows of one head lie pages apart, and a loop would wait for each row in turn. Any address
// is allowed: a prefetch does not access it.
inline void FetchRows(const std::byte* first, int64_t bytes, int64_t stride, int64_t count) {
  constexpr uintptr_t kLine = 64;
  for (int64_t row = 0; row < count; ++row) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(first) + row * stride;
    for (uintptr_t line = begin / kLine * kLine; line < begin + bytes; line += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(line), /*rw=*/0, /*locality=*/2);
  }
}

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_FETCH_ROWS_H_
