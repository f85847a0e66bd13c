#ifndef ANNULUS_CLIENT_CHUNK_WRITER_H_
#define ANNULUS_CLIENT_CHUNK_WRITER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "client/raw_stream.h"
#include "proto/tensor_stream.h"

namespace annulus {

// Held by whoever still uses a chunk's memory; when the last copy goes, its producer goes on. This
// is all the back-pressure there is: what is under way is bounded by the credits that are out.
using Credit = std::shared_ptr<void>;

// Where an upload gets its chunks.
class ChunkSource {
 public:
  enum class State {
    kChunk,  // A chunk; more may follow.
    kLast,   // The last chunk.
    kWait,   // None now: call ChunkWriter::Kick() when there is one.
    kEnd,    // None any more.
  };
  virtual ~ChunkSource() = default;
  // Called from one thread at a time. The chunk's memory is in use until its credit is dropped.
  virtual State Next(TensorChunk* chunk, Credit* credit) = 0;
};

// Chunks that are pushed. Unbounded by itself: the producer's credits are the bound. Thread-safe.
class PushSource : public ChunkSource {
 public:
  void Push(TensorChunk chunk, Credit credit) EXCLUDES(mutex_);
  void Close() EXCLUDES(mutex_);
  State Next(TensorChunk* chunk, Credit* credit) override EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::deque<std::pair<TensorChunk, Credit>> chunks_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

// Writes a source's chunks to a stream as field 2 of its messages, one at a time, and half-closes
// after the last one.
class ChunkWriter {
 public:
  // `sent` is called with the bytes of each chunk when it has been written.
  ChunkWriter(std::shared_ptr<ChunkSource> source, std::function<void(int64_t)> sent)
      : source_(std::move(source)), sent_(std::move(sent)) {}

  // Writing may begin, or the write that was under way is done.
  void OnWritable(RawStream* stream) EXCLUDES(mutex_);
  // There may be a chunk where there was none.
  void Kick(RawStream* stream) EXCLUDES(mutex_);

 private:
  void WriteNext(RawStream* stream) EXCLUDES(mutex_);

  const std::shared_ptr<ChunkSource> source_;
  const std::function<void(int64_t)> sent_;
  // Of the thread that has busy_.
  Credit credit_;
  int64_t bytes_ = 0;
  bool ended_ = false;
  Mutex mutex_;
  bool busy_ GUARDED_BY(mutex_) = true;  // A write is under way, or writing may not begin yet.
  bool kicked_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CHUNK_WRITER_H_
