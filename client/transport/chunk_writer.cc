#include "client/transport/chunk_writer.h"

namespace annulus {

void ChunkBatch::Add(TensorChunk chunk, Credit credit) {
  bytes += static_cast<int64_t>(chunk.data.size());
  chunks.push_back(std::move(chunk));
  // Also a null pointer: a credit may consist of a deleter alone.
  credits.push_back(std::move(credit));
}

void PushSource::Push(TensorChunk chunk, Credit credit) {
  MutexLock lock(&mutex_);
  if (!closed_) chunks_.emplace_back(std::move(chunk), std::move(credit));
}

void PushSource::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
}

ChunkSource::State PushSource::Next(ChunkBatch* batch) {
  MutexLock lock(&mutex_);
  if (chunks_.empty()) return closed_ ? State::kEnd : State::kWait;
  while (!chunks_.empty() &&
         batch->HasRoomFor(static_cast<int64_t>(chunks_.front().first.data.size()))) {
    batch->Add(std::move(chunks_.front().first), std::move(chunks_.front().second));
    chunks_.pop_front();
  }
  return closed_ && chunks_.empty() ? State::kLast : State::kChunks;
}

void ChunkWriter::OnWritable(RawStream* stream) {
  const int64_t bytes = std::exchange(batch_, ChunkBatch()).bytes;
  if (bytes > 0) sent_(bytes);
  if (!ended_) WriteNext(stream);
}

void ChunkWriter::Kick(RawStream* stream) {
  {
    MutexLock lock(&mutex_);
    kicked_ = true;
    if (busy_) return;
    busy_ = true;
  }
  WriteNext(stream);
}

void ChunkWriter::WriteNext(RawStream* stream) {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      kicked_ = false;
    }
    const ChunkSource::State state = source_->Next(&batch_);
    ended_ = state == ChunkSource::State::kEnd || state == ChunkSource::State::kLast;
    const auto opening = std::move(opening_);
    switch (state) {
      case ChunkSource::State::kChunks:
        return stream->Write(EncodeChunks(batch_.chunks, opening.get()));
      case ChunkSource::State::kLast:
        return stream->WriteLast(EncodeChunks(batch_.chunks, opening.get()));
      case ChunkSource::State::kEnd:
        return opening == nullptr ? stream->HalfClose() : stream->WriteLast(EncodeProto(*opening));
      case ChunkSource::State::kWait:
        // The worker waits for the ticket, which must not wait for late chunks.
        if (opening != nullptr) return stream->Write(EncodeProto(*opening));
        MutexLock lock(&mutex_);
        if (kicked_) continue;
        busy_ = false;
        return;
    }
  }
}

}  // namespace annulus
