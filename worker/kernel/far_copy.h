#ifndef ANNULUS_WORKER_KERNEL_FAR_COPY_H_
#define ANNULUS_WORKER_KERNEL_FAR_COPY_H_

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace annulus {

// So many bytes, written in one go, have left the caches of a core before they are read again.
inline constexpr int64_t kFarBytes = int64_t{4} << 20;

// memcpy to memory that is read much later: past the caches, whose lines it would have to read
// first, where its ends are aligned to vectors. FarFence comes before others may read it.
inline void CopyFar(void* to, const void* from, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) != 0 || bytes % sizeof(__m128i) != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i)
    _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
}
inline void FarFence() { _mm_sfence(); }

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_FAR_COPY_H_
