#ifndef ANNULUS_CLIENT_SHARD_EXCHANGE_H_
#define ANNULUS_CLIENT_SHARD_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/chunk_writer.h"
#include "client/exchange_stream.h"
#include "client/kept_exchange.h"
#include "client/shard_streams.h"

namespace annulus {

// A small shard, there and back, on a kept call: its ticket and all of its inputs in one message.
struct ShardExchangeOptions {
  std::shared_ptr<ExchangePool> pool;
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
  std::string ticket;
  ChunkBatch inputs;                  // All.
  std::function<void(int64_t)> sent;  // Bytes of the inputs, once, when they have left.
  ShardOutputs outputs;
  std::function<void(absl::Status)> done;  // Last, once.
};
std::shared_ptr<KeptExchange> StartShardExchange(ShardExchangeOptions options);

// Whether a shard of so many bytes may go so. Its outputs are one message: no more of them comes
// ahead of its reader, whatever the connection's windows are.
inline bool IsSmallShard(int64_t input_bytes, int64_t output_bytes) {
  return input_bytes > 0 && input_bytes <= kMaxWithTicket && output_bytes > 0 &&
         output_bytes <= kMaxChunkBytes;
}

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SHARD_EXCHANGE_H_
