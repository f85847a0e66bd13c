#ifndef ANNULUS_CLIENT_TRANSPORT_PUSHED_INPUTS_H_
#define ANNULUS_CLIENT_TRANSPORT_PUSHED_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "attention/spec/tensor_table.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/shard_streams.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

// The uploads of an attempt whose inputs are pushed, by rank. One owner at a time.
class PushedInputs {
 public:
  // A rank that needs `bytes`. What is pushed waits for its upload.
  void Add(int32_t rank, int64_t bytes);
  // The inputs of a rank that has been added, where those of every rank are here, so that nobody
  // waits for credits that they hold, and they fit one message: its upload, by other means, is the
  // caller's. Else nothing.
  ChunkBatch TakeAll(int32_t rank);
  // The source for the rank's upload, and then that upload.
  std::shared_ptr<PushSource> source(int32_t rank) { return ranks_[rank].source; }
  void SetUpload(int32_t rank, std::shared_ptr<ShardUpload> upload);

  // parts[r] goes to rank r; ranks that were not added get nothing. `credit` is dropped when the
  // last part has left. INVALID_ARGUMENT / CHUNK_OVERLAP for more bytes than a rank needs.
  absl::Status Push(std::vector<TensorChunk> parts, const Credit& credit);

  int64_t bytes_missing() const;            // Of all ranks.
  int64_t bytes_of(TensorId tensor) const;  // Pushed.
  // All has been pushed, or nothing more is wanted.
  void Close();

 private:
  struct Rank {
    std::shared_ptr<PushSource> source;
    std::shared_ptr<ShardUpload> upload;
    int64_t bytes_missing = 0;
    size_t chunks = 0;
  };
  std::map<int32_t, Rank> ranks_;
  std::map<TensorId, int64_t> bytes_of_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_PUSHED_INPUTS_H_
