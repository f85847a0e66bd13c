#include "client/chunk_writer.h"

namespace annulus {

void PushSource::Push(TensorChunk chunk, Credit credit) {
  MutexLock lock(&mutex_);
  if (!closed_) chunks_.emplace_back(std::move(chunk), std::move(credit));
}

void PushSource::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
}

ChunkSource::State PushSource::Next(TensorChunk* chunk, Credit* credit) {
  MutexLock lock(&mutex_);
  if (chunks_.empty()) return closed_ ? State::kEnd : State::kWait;
  *chunk = std::move(chunks_.front().first);
  *credit = std::move(chunks_.front().second);
  chunks_.pop_front();
  return closed_ && chunks_.empty() ? State::kLast : State::kChunk;
}

void ChunkWriter::OnWritable(RawStream* stream) {
  credit_.reset();
  if (bytes_ > 0) sent_(bytes_);
  bytes_ = 0;
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
    TensorChunk chunk;
    const ChunkSource::State state = source_->Next(&chunk, &credit_);
    bytes_ = static_cast<int64_t>(chunk.data.size());
    ended_ = state == ChunkSource::State::kEnd || state == ChunkSource::State::kLast;
    switch (state) {
      case ChunkSource::State::kChunk:
        return stream->Write(EncodeChunk(chunk, ChunkStep::kStep));
      case ChunkSource::State::kLast:
        return stream->WriteLast(EncodeChunk(chunk, ChunkStep::kStep));
      case ChunkSource::State::kEnd:
        return stream->HalfClose();
      case ChunkSource::State::kWait:
        MutexLock lock(&mutex_);
        if (kicked_) continue;
        busy_ = false;
        return;
    }
  }
}

}  // namespace annulus
