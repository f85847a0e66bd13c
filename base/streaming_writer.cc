#include "base/streaming_writer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace annulus {

#if defined(__SSE2__)

namespace {

constexpr size_t kLine = 64;

// `target` must be aligned to a line: a part of a line would be a separate write to memory.
void StreamLine(char* target, const char* source) {
  auto* to = reinterpret_cast<__m128i*>(target);
  const auto* from = reinterpret_cast<const __m128i*>(source);
  const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

}  // namespace

// Only a fence orders streaming stores; the release of a lock does not.
StreamingWriter::~StreamingWriter() { _mm_sfence(); }

void StreamingWriter::Copy(void* target, const void* source, size_t size) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
  const size_t head = std::min(size, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; size - done >= kLine; done += kLine) StreamLine(to + done, from + done);
  std::memcpy(to + done, from + done, size - done);
}

#else

StreamingWriter::~StreamingWriter() = default;

void StreamingWriter::Copy(void* target, const void* source, size_t size) {
  std::memcpy(target, source, size);
}

#endif

}  // namespace annulus
