#ifndef ANNULUS_BASE_STREAMING_WRITER_H_
#define ANNULUS_BASE_STREAMING_WRITER_H_

#include <cstddef>
#include <cstdint>

namespace annulus {

// From this size on, bytes written at once are no longer in a core's own caches when they are read.
inline constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// Copies bytes that are not read soon, bypassing the caches. So lines of the target are not fetched
// before they are overwritten, and do not displace others. Once the writer is destroyed, its writes
// are visible to other threads like any store. One thread at a time.
class StreamingWriter {
 public:
  StreamingWriter() = default;
  ~StreamingWriter();
  StreamingWriter(const StreamingWriter&) = delete;
  StreamingWriter& operator=(const StreamingWriter&) = delete;

  // memcpy for any size and alignment.
  void Copy(void* target, const void* source, size_t size);
};

}  // namespace annulus

#endif  // ANNULUS_BASE_STREAMING_WRITER_H_
