#include "client/transport/pushed_inputs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace annulus {

void PushedInputs::Add(int32_t rank, int64_t bytes) {
  Rank& added = ranks_[rank];
  added.source = std::make_shared<PushSource>();
  added.bytes_missing = bytes;
}

ChunkBatch PushedInputs::TakeAll(int32_t rank) {
  ChunkBatch batch;
  const bool all = std::all_of(ranks_.begin(), ranks_.end(),
                               [](const auto& entry) { return entry.second.bytes_missing == 0; });
  const Rank& added = ranks_[rank];
  if (all && added.chunks <= kMaxMessageChunks) added.source->Next(&batch);
  return batch;
}

void PushedInputs::SetUpload(int32_t rank, std::shared_ptr<ShardUpload> upload) {
  ranks_[rank].upload = std::move(upload);
}

absl::Status PushedInputs::Push(std::vector<TensorChunk> parts, const Credit& credit) {
  for (auto& [number, rank] : ranks_) {
    TensorChunk& part = parts[number];
    if (part.row_count == 0) continue;
    // Checked here, because a worker ignores chunks after its shard is complete.
    rank.bytes_missing -= static_cast<int64_t>(part.data.size());
    if (rank.bytes_missing < 0) {
      return InvalidField("CHUNK_OVERLAP", "chunk.row_begin", "its rows were already received");
    }
    bytes_of_[part.tensor] += static_cast<int64_t>(part.data.size());
    ++rank.chunks;
    rank.source->Push(std::move(part), credit);
    if (rank.upload != nullptr) rank.upload->Kick();
  }
  return absl::OkStatus();
}

int64_t PushedInputs::bytes_missing() const {
  int64_t bytes = 0;
  for (const auto& [number, rank] : ranks_) bytes += rank.bytes_missing;
  return bytes;
}

int64_t PushedInputs::bytes_of(TensorId tensor) const {
  const auto found = bytes_of_.find(tensor);
  return found == bytes_of_.end() ? 0 : found->second;
}

void PushedInputs::Close() {
  for (auto& [number, rank] : ranks_) {
    rank.source->Close();
    if (rank.upload != nullptr) rank.upload->Kick();
  }
}

}  // namespace annulus
