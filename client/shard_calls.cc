#include "client/shard_calls.h"

#include <atomic>
#include <utility>

namespace annulus {
namespace {

// What goes in one message: all inputs of the rank, or nothing.
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
  // The worker says nothing of inputs that it has.
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
