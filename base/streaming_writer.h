#ifndef ANNULUS_BASE_STREAMING_WRITER_H_
#define ANNULUS_BASE_STREAMING_WRITER_H_

#include <cstddef>
#include <cstdint>

namespace annulus {

// So many bytes that are written in one go are not read again from a core's own caches.
inline constexpr int64_t kStreamedBytes = int64_t{4} << 20;

// Copies of bytes that nobody reads soon: past the caches, so that the target's lines are neither
// fetched before they are overwritten nor push others out. What it has written is visible to other
// threads as any store is once the writer is gone. One thread at a time.
class StreamingWriter {
 public:
  StreamingWriter() = default;
  ~StreamingWriter();
  StreamingWriter(const StreamingWriter&) = delete;
  StreamingWriter& operator=(const StreamingWriter&) = delete;

  // As memcpy, of any size and alignment.
  void Copy(void* target, const void* source, size_t size);
};

}  // namespace annulus

#endif  // ANNULUS_BASE_STREAMING_WRITER_H_
