#ifndef ANNULUS_CLIENT_TRANSPORT_CHUNK_WRITER_H_
#define ANNULUS_CLIENT_TRANSPORT_CHUNK_WRITER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "client/transport/raw_stream.h"
#include "google/protobuf/message_lite.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

// Flow control. A user of a chunk's memory holds a credit. When the last copy is dropped, the
// producer of the chunk continues. The credits in use bound the bytes in flight; there is no other
// bound.
using Credit = std::shared_ptr<void>;

// The chunks of one message, with the credits for their memory.
struct ChunkBatch {
  std::vector<TensorChunk> chunks;
  std::vector<Credit> credits;
  int64_t bytes = 0;

  // True if a chunk of `more` bytes fits into the message.
  bool HasRoomFor(int64_t more) const {
    return chunks.empty() || (chunks.size() < kMaxMessageChunks && bytes + more <= kMaxChunkBytes);
  }
  void Add(TensorChunk chunk, Credit credit);
};

// The source of an upload's chunks.
class ChunkSource {
 public:
  enum class State {
    kChunks,  // At least one chunk. More may follow.
    kLast,    // The last chunks.
    kWait,    // No chunk yet. Call ChunkWriter::Kick() when there is one.
    kEnd,     // No chunk, and no more will come.
  };
  virtual ~ChunkSource() = default;
  // Fills an empty batch with the chunks at hand. One thread at a time.
  virtual State Next(ChunkBatch* batch) = 0;
};

// A queue of pushed chunks. It has no limit of its own: the producer's credits are the bound.
// Thread-safe.
class PushSource : public ChunkSource {
 public:
  void Push(TensorChunk chunk, Credit credit) EXCLUDES(mutex_);
  void Close() EXCLUDES(mutex_);
  State Next(ChunkBatch* batch) override EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::deque<std::pair<TensorChunk, Credit>> chunks_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

// Writes the chunks of a source to a stream, one message at a time, and half-closes after the last.
// One write is outstanding at a time. OnWritable() and Kick() may run on different threads.
class ChunkWriter {
 public:
  // `opening` goes with the first chunks, or alone if the source has none at first. Null: nothing
  // is written before the first chunks. `sent` is called after each write with the message's bytes
  // of tensor.
  ChunkWriter(std::unique_ptr<google::protobuf::MessageLite> opening,
              std::shared_ptr<ChunkSource> source, std::function<void(int64_t)> sent)
      : opening_(std::move(opening)), source_(std::move(source)), sent_(std::move(sent)) {}

  // Call to start writing, and after each finished write.
  void OnWritable(RawStream* stream) EXCLUDES(mutex_);
  // Call when the source may have a chunk after it had none.
  void Kick(RawStream* stream) EXCLUDES(mutex_);

 private:
  void WriteNext(RawStream* stream) EXCLUDES(mutex_);

  // These belong to the thread that has set busy_.
  std::unique_ptr<google::protobuf::MessageLite> opening_;
  const std::shared_ptr<ChunkSource> source_;
  const std::function<void(int64_t)> sent_;
  ChunkBatch batch_;  // The batch that is being written.
  bool ended_ = false;
  Mutex mutex_;
  // True while a write is outstanding, and before writing may start.
  bool busy_ GUARDED_BY(mutex_) = true;
  bool kicked_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_CHUNK_WRITER_H_
