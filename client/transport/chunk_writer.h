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

// Held by whoever still uses a chunk's memory; when the last copy goes, its producer goes on. This
// is all the back-pressure there is: what is under way is bounded by the credits that are out.
using Credit = std::shared_ptr<void>;

// Chunks for one message, and what holds their memory.
struct ChunkBatch {
  std::vector<TensorChunk> chunks;
  std::vector<Credit> credits;
  int64_t bytes = 0;

  // Whether a chunk of `bytes` may be added.
  bool HasRoomFor(int64_t more) const {
    return chunks.empty() || (chunks.size() < kMaxMessageChunks && bytes + more <= kMaxChunkBytes);
  }
  void Add(TensorChunk chunk, Credit credit);
};

// Where an upload gets its chunks.
class ChunkSource {
 public:
  enum class State {
    kChunks,  // At least one chunk; more may follow.
    kLast,    // The last chunks.
    kWait,    // None now: call ChunkWriter::Kick() when there is one.
    kEnd,     // None any more.
  };
  virtual ~ChunkSource() = default;
  // Fills an empty batch with what is there. Called from one thread at a time.
  virtual State Next(ChunkBatch* batch) = 0;
};

// Chunks that are pushed. Unbounded by itself: the producer's credits are the bound. Thread-safe.
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

// Writes a source's chunks to a stream, one message at a time, and half-closes after the last one.
class ChunkWriter {
 public:
  // `opening` goes with the first chunks, or alone where there are none at first; may be nullptr:
  // then nothing is written before there are chunks. `sent` is called with the bytes of each
  // message when it has been written.
  ChunkWriter(std::unique_ptr<google::protobuf::MessageLite> opening,
              std::shared_ptr<ChunkSource> source, std::function<void(int64_t)> sent)
      : opening_(std::move(opening)), source_(std::move(source)), sent_(std::move(sent)) {}

  // Writing may begin, or the write that was under way is done.
  void OnWritable(RawStream* stream) EXCLUDES(mutex_);
  // There may be a chunk where there was none.
  void Kick(RawStream* stream) EXCLUDES(mutex_);

 private:
  void WriteNext(RawStream* stream) EXCLUDES(mutex_);

  // Of the thread that has busy_.
  std::unique_ptr<google::protobuf::MessageLite> opening_;
  const std::shared_ptr<ChunkSource> source_;
  const std::function<void(int64_t)> sent_;
  ChunkBatch batch_;  // On its way.
  bool ended_ = false;
  Mutex mutex_;
  bool busy_ GUARDED_BY(mutex_) = true;  // A write is under way, or writing may not begin yet.
  bool kicked_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_CHUNK_WRITER_H_
