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

// The uploads of one attempt whose inputs are pushed, by rank. Not thread-safe.
class PushedInputs {
 public:
  // Adds a rank that needs `bytes`. Chunks that are pushed before its upload exists are queued.
  void Add(int32_t rank, int64_t bytes);
  // Takes all inputs of an added rank, if they fit into one message and every rank has all of its
  // inputs (otherwise a rank could wait for credits that this batch holds). The caller then uploads
  // the batch itself. Empty otherwise.
  ChunkBatch TakeAll(int32_t rank);
  // The source for the rank's upload. Pass that upload to SetUpload().
  std::shared_ptr<PushSource> source(int32_t rank) { return ranks_[rank].source; }
  void SetUpload(int32_t rank, std::shared_ptr<ShardUpload> upload);

  // Queues parts[r] for rank r; drops parts of ranks that were not added. `credit` is dropped when
  // the last part has been written. INVALID_ARGUMENT / CHUNK_OVERLAP if a rank gets more bytes than
  // it needs.
  absl::Status Push(std::vector<TensorChunk> parts, const Credit& credit);

  int64_t bytes_missing() const;            // Sum over all ranks.
  int64_t bytes_of(TensorId tensor) const;  // Pushed bytes of a tensor.
  // Ends all sources: all inputs are pushed, or the uploads are no longer needed.
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
