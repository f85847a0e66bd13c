#include "client/transport/shard_calls.h"

#include <atomic>
#include <utility>

#include "annulus/v1/data_plane.pb.h"

namespace annulus {
namespace {

grpc::ByteBuffer MessageOf(const std::string& ticket, const ChunkBatch& inputs) {
  v1::PutShardRequest request;
  request.set_ticket(ticket);
  return EncodeChunks(inputs.chunks, &request);
}

// True for the errors of a worker that has served the shard already, or no longer has it.
// CANCELLED: the worker has cut the call before its error was read.
bool SaysNoMore(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsCancelled(status);
}

}  // namespace

std::shared_ptr<PooledRequest> StartShardExchange(ShardExchangeOptions options) {
  const auto receiver = std::make_shared<OutputReceiver>(std::move(options.outputs));
  PooledRequest::Options exchange;
  exchange.pool = std::move(options.pool);
  exchange.endpoint = std::move(options.endpoint);
  exchange.channel = std::move(options.channel);
  exchange.message = MessageOf(options.ticket, options.inputs);
  exchange.credits = std::move(options.inputs.credits);
  exchange.sent = [sent = std::move(options.sent), bytes = options.inputs.bytes] { sent(bytes); };
  exchange.receive = [receiver](const grpc::ByteBuffer& message, const Credit& next) {
    return receiver->Receive(message, next);
  };
  exchange.done = [receiver, done = std::move(options.done)](const PooledRequest::End& end) {
    // The worker may have taken the shard before the pooled call broke. Then the first error is the
    // true one.
    const bool taken = !end.answered && !end.stale.ok() && SaysNoMore(end.status);
    done(receiver->Judge(taken ? end.stale : end.status));
  };
  return PooledRequest::Start(std::move(exchange));
}

namespace {

// All inputs of the rank if they fit into one message, else nothing.
ChunkBatch AllInputs(const v1::ShardPlan& shard, ChunkSource* memory, PushedInputs* pushed) {
  if (memory == nullptr) return pushed->TakeAll(shard.rank());
  ChunkBatch batch;
  memory->Next(&batch);
  return batch.bytes == shard.input_bytes() ? std::move(batch) : ChunkBatch();
}

}  // namespace

ShardCalls::ShardCalls(const ShardCallOptions& options, const v1::ShardPlan& shard,
                       const ShardRows& rows, const InputMemory* inputs, PushedInputs* pushed,
                       const ShardHandlers& handlers) {
  ShardOutputs outputs{options.table, rows, handlers.sink, handlers.report};
  const auto memory = [&]() -> std::shared_ptr<ChunkSource> {
    if (inputs == nullptr) return nullptr;
    return std::make_shared<MemorySource>(options.table, rows, *inputs);
  };
  if (options.exchanges != nullptr && IsSmallShard(shard.input_bytes(), shard.output_bytes())) {
    ChunkBatch all = AllInputs(shard, memory().get(), pushed);
    if (all.bytes > 0) {
      Exchange(options, shard, std::move(all), std::move(outputs), handlers);
      return;
    }
  }
  const RawStream::Call call = {options.worker_channel(shard.endpoint()), "", options.deadline,
                                options.metadata};
  if (shard.input_bytes() > 0) {
    const std::shared_ptr<ChunkSource> source = memory();
    upload_ = ShardUpload::Start({call, shard.ticket(),
                                  source != nullptr ? source : pushed->source(shard.rank()),
                                  shard.input_bytes(), handlers.sent, handlers.uploaded});
    if (inputs == nullptr) pushed->SetUpload(shard.rank(), upload_);
    upload_->Begin();
  }
  if (shard.output_bytes() > 0) {
    download_ =
        ShardDownload::Start({call, shard.ticket(), std::move(outputs), handlers.downloaded});
  }
}

void ShardCalls::Exchange(const ShardCallOptions& options, const v1::ShardPlan& shard,
                          ChunkBatch inputs, ShardOutputs outputs, const ShardHandlers& handlers) {
  ShardExchangeOptions exchange;
  exchange.pool = options.exchanges;
  exchange.endpoint = shard.endpoint();
  exchange.channel = options.exchanges->ChannelOf(shard.endpoint(), options.worker_channel);
  exchange.ticket = shard.ticket();
  exchange.inputs = std::move(inputs);
  exchange.outputs = std::move(outputs);
  // The worker does not confirm inputs in an exchange: the upload counts as done when it is
  // written.
  auto left = std::make_shared<std::atomic<bool>>(false);
  exchange.sent = [left, sent = handlers.sent, uploaded = handlers.uploaded](int64_t bytes) {
    sent(bytes);
    *left = true;
    uploaded(absl::OkStatus());
  };
  exchange.done = [left, handlers](const absl::Status& status) {
    if (!*left) handlers.uploaded(status);
    handlers.downloaded(status);
  };
  exchange_ = StartShardExchange(std::move(exchange));
}

void ShardCalls::Cancel() const {
  if (upload_ != nullptr) upload_->Cancel();
  if (download_ != nullptr) download_->Cancel();
  if (exchange_ != nullptr) exchange_->Cancel();
}

}  // namespace annulus
