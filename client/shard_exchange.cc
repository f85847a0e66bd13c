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

// How a call ends that was kept for too long, that had to make room for others, whose worker has
// gone, or that was cut short for the sake of the shard before: nothing of this shard was refused.
bool IsStale(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// What a worker says that has served the shard, or one that is not the shard's any more; or what is
// left of that where it cut the call.
bool SaysNoMore(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         absl::IsCancelled(status);
}

}  // namespace

ShardExchange::ShardExchange(Options options)
    : pool_(std::move(options.pool)),
      endpoint_(std::move(options.endpoint)),
      channel_(std::move(options.channel)),
      bytes_(options.inputs.bytes),
      sent_(std::move(options.sent)),
      done_(std::move(options.done)),
      receiver_(std::move(options.outputs)),
      message_(MessageOf(options.ticket, options.inputs)),
      credits_(std::move(options.inputs.credits)) {}

std::shared_ptr<ShardExchange> ShardExchange::Start(Options options) {
  std::shared_ptr<ShardExchange> exchange(new ShardExchange(std::move(options)));
  MutexLock lock(&exchange->mutex_);
  exchange->SendLocked(/*may_be_kept=*/true);
  return exchange;
}

void ShardExchange::SendLocked(bool may_be_kept) {
  stream_ = may_be_kept ? pool_->Take(endpoint_, shared_from_this()) : nullptr;
  kept_ = stream_ != nullptr;
  if (!kept_) stream_ = pool_->Open(endpoint_, channel_, shared_from_this());
  reading_ = true;
  written_ = false;
  stream_->Write(message_);
}

void ShardExchange::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  if (!finished_) stream_->Cancel();
}

void ShardExchange::ReadNext() {
  MutexLock lock(&mutex_);
  if (!std::exchange(reading_, true)) stream_->Read();
}

void ShardExchange::OnMessage(const grpc::ByteBuffer& message) {
  std::vector<Credit> credits;  // Go without the lock.
  {
    MutexLock lock(&mutex_);
    answered_ = true;
    reading_ = false;
    message_.Clear();
    credits.swap(credits_);
  }
  const Credit next(nullptr, [self = shared_from_this()](void*) { self->ReadNext(); });
  const absl::StatusOr<bool> reported = receiver_.Receive(message, next);
  if (!reported.ok()) return Cancel();
  if (!*reported) return;
  {
    MutexLock lock(&mutex_);
    reported_ = true;
  }
  FinishIfThrough();
}

void ShardExchange::OnWritten() {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !std::exchange(told_, true);
  }
  if (first) sent_(bytes_);
  {
    MutexLock lock(&mutex_);
    written_ = true;
  }
  FinishIfThrough();
}

void ShardExchange::FinishIfThrough() {
  std::shared_ptr<ExchangeStream> stream;
  {
    MutexLock lock(&mutex_);
    // A call that was cancelled is nobody's any more: its end follows.
    if (!written_ || !reported_ || cancelled_ || std::exchange(finished_, true)) return;
    stream = stream_;
  }
  stream->Detach();
  // The next message is the next shard's. Whoever still holds a credit of this one's outputs holds
  // nothing up.
  ReadNext();
  pool_->Give(endpoint_, std::move(stream));
  done_(receiver_.Judge(absl::OkStatus()));
}

void ShardExchange::OnEnded(const absl::Status& status) {
  absl::Status end = status.ok() ? absl::UnavailableError("the worker ended the exchange") : status;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (kept_ && !answered_ && !cancelled_ && IsStale(status)) {
      if (!absl::IsResourceExhausted(status)) stale_ = status;  // That one took nothing.
      return SendLocked(/*may_be_kept=*/false);
    }
    finished_ = true;
    // The worker may have taken the shard before the first call broke.
    if (!answered_ && !cancelled_ && !stale_.ok() && SaysNoMore(status)) end = stale_;
  }
  done_(receiver_.Judge(std::move(end)));
}

}  // namespace annulus
