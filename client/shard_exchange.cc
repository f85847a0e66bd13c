#include "client/shard_exchange.h"

#include <utility>

#include "annulus/v1/data_plane.pb.h"

namespace annulus {
namespace {

grpc::ByteBuffer MessageOf(const std::string& ticket, const ChunkBatch& inputs) {
  v1::PutShardRequest request;
  request.set_ticket(ticket);
  return EncodeChunks(inputs.chunks, &request);
}

// What a worker says that has served the shard, or one that is not the shard's any more; or what is
// left of that where it cut the call.
bool SaysNoMore(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsCancelled(status);
}

}  // namespace

std::shared_ptr<KeptExchange> StartShardExchange(ShardExchangeOptions options) {
  const auto receiver = std::make_shared<OutputReceiver>(std::move(options.outputs));
  KeptExchange::Options exchange;
  exchange.pool = std::move(options.pool);
  exchange.endpoint = std::move(options.endpoint);
  exchange.channel = std::move(options.channel);
  exchange.message = MessageOf(options.ticket, options.inputs);
  exchange.credits = std::move(options.inputs.credits);
  exchange.sent = [sent = std::move(options.sent), bytes = options.inputs.bytes] { sent(bytes); };
  exchange.receive = [receiver](const grpc::ByteBuffer& message, const Credit& next) {
    return receiver->Receive(message, next);
  };
  exchange.done = [receiver, done = std::move(options.done)](const KeptExchange::End& end) {
    // The worker may have taken the shard before the first call broke.
    const bool taken = !end.answered && !end.stale.ok() && SaysNoMore(end.status);
    done(receiver->Judge(taken ? end.stale : end.status));
  };
  return KeptExchange::Start(std::move(exchange));
}

}  // namespace annulus
