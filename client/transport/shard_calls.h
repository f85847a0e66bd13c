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

// A small shard, there and back, on a kept call: its ticket and all of its inputs in one message.
struct ShardExchangeOptions {
  std::shared_ptr<StreamPool> pool;
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
  std::string ticket;
  ChunkBatch inputs;                  // All.
  std::function<void(int64_t)> sent;  // Bytes of the inputs, once, when they have left.
  ShardOutputs outputs;
  std::function<void(absl::Status)> done;  // Last, once.
};
std::shared_ptr<PooledRequest> StartShardExchange(ShardExchangeOptions options);

// Whether a shard of so many bytes may go so. Its outputs are one message: no more of them comes
// ahead of its reader, whatever the connection's windows are.
inline bool IsSmallShard(int64_t input_bytes, int64_t output_bytes) {
  return input_bytes > 0 && input_bytes <= kMaxWithTicket && output_bytes > 0 &&
         output_bytes <= kMaxChunkBytes;
}

// What all shards of a job have in common.
struct ShardCallOptions {
  // A channel to a worker's endpoint.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Calls for small shards; nullptr: each shard has calls of its own.
  std::shared_ptr<StreamPool> exchanges;
  Metadata metadata;
  absl::Time deadline;  // By base/steady_time.h.
  std::vector<TensorInfo> table;
};

// Called from any thread; must not wait.
struct ShardHandlers {
  std::function<void(int64_t)> sent;  // Bytes of one message.
  ChunkSink sink;
  std::function<void(const v1::ShardReport&)> report;
  // The end of each direction that the shard has, once.
  std::function<void(absl::Status)> uploaded, downloaded;
};

// One shard's calls to its worker: an exchange where it is small and its inputs are all at hand,
// else one call for what it sends and one for what it fetches.
class ShardCalls {
 public:
  ShardCalls() = default;
  // With `inputs` the shard's rows come from there, else from what has been pushed and will be:
  // `pushed` knows the rank.
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
