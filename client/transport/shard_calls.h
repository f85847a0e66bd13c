#ifndef ANNULUS_CLIENT_TRANSPORT_SHARD_CALLS_H_
#define ANNULUS_CLIENT_TRANSPORT_SHARD_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/pushed_inputs.h"
#include "client/transport/scatter.h"
#include "client/transport/shard_streams.h"
#include "client/transport/stream_pool.h"
#include "client/transport/tensor_memory.h"
#include "grpcpp/channel.h"

namespace annulus {

// Uploads and downloads a small shard on a pooled ExchangeShards call. Its ticket and all of its
// inputs are one message.
struct ShardExchangeOptions {
  std::shared_ptr<StreamPool> pool;
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
  std::string ticket;
  ChunkBatch inputs;  // All inputs of the shard.
  // Called once with the bytes of the inputs, when they have been written.
  std::function<void(int64_t)> sent;
  ShardOutputs outputs;
  std::function<void(absl::Status)> done;  // The last call, once.
};
std::shared_ptr<PooledRequest> StartShardExchange(ShardExchangeOptions options);

// True if a shard is small enough for an exchange. The outputs must fit into one message: then no
// more of them arrive ahead of the reader, whatever the connection's windows are.
inline bool IsSmallShard(int64_t input_bytes, int64_t output_bytes) {
  return input_bytes > 0 && input_bytes <= kMaxWithTicket && output_bytes > 0 &&
         output_bytes <= kMaxChunkBytes;
}

// Common to all shards of a job.
struct ShardCallOptions {
  // Returns a channel to a worker's endpoint.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Pooled calls for small shards. Null: each shard has its own calls.
  std::shared_ptr<StreamPool> exchanges;
  Metadata metadata;
  absl::Time deadline;  // On the clock of base/steady_time.h.
  std::vector<TensorInfo> table;
};

// Called from any thread; must not block.
struct ShardHandlers {
  std::function<void(int64_t)> sent;  // The bytes of one message.
  ChunkSink sink;
  std::function<void(const v1::ShardReport&)> report;
  // The end of each direction that the shard has, once each.
  std::function<void(absl::Status)> uploaded, downloaded;
};

// The calls of one shard to its worker: an exchange if the shard is small and all its inputs are at
// hand; else PutShard for its inputs and FetchShard for its outputs.
class ShardCalls {
 public:
  ShardCalls() = default;
  // The shard's rows come from `inputs`; if null, from `pushed`, to which the rank has been added.
  ShardCalls(const ShardCallOptions& options, const v1::ShardPlan& shard, const ShardRows& rows,
             const InputMemory* inputs, PushedInputs* pushed, const ShardHandlers& handlers);

  void Cancel() const;

 private:
  void Exchange(const ShardCallOptions& options, const v1::ShardPlan& shard, ChunkBatch inputs,
                ShardOutputs outputs, const ShardHandlers& handlers);

  std::shared_ptr<ShardUpload> upload_;
  std::shared_ptr<ShardDownload> download_;
  std::shared_ptr<PooledRequest> exchange_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SHARD_CALLS_H_
