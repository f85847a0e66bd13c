#ifndef ANNULUS_CLIENT_SHARD_CALLS_H_
#define ANNULUS_CLIENT_SHARD_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/types.pb.h"
#include "client/exchange_stream.h"
#include "client/pushed_inputs.h"
#include "client/scatter.h"
#include "client/shard_exchange.h"
#include "client/shard_streams.h"
#include "client/tensor_memory.h"
#include "grpcpp/channel.h"

namespace annulus {

// What all shards of a job have in common.
struct ShardCallOptions {
  // A channel to a worker's endpoint.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Calls for small shards; nullptr: each shard has calls of its own.
  std::shared_ptr<ExchangePool> exchanges;
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
  std::shared_ptr<KeptExchange> exchange_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SHARD_CALLS_H_
