#include "client/kept_exchange.h"

#include <utility>

namespace annulus {
namespace {

// How a call ends that was kept for too long, that had to make room for others, whose server has
// gone, or that was cut short for the sake of its user before: nothing of this one was refused.
bool IsStale(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace

KeptExchange::KeptExchange(Options options)
    : pool_(std::move(options.pool)),
      endpoint_(std::move(options.endpoint)),
      channel_(std::move(options.channel)),
      sent_(std::move(options.sent)),
      receive_(std::move(options.receive)),
      done_(std::move(options.done)),
      message_(std::move(options.message)),
      credits_(std::move(options.credits)) {}

std::shared_ptr<KeptExchange> KeptExchange::Start(Options options) {
  std::shared_ptr<KeptExchange> exchange(new KeptExchange(std::move(options)));
  MutexLock lock(&exchange->mutex_);
  exchange->SendLocked(/*may_be_kept=*/true);
  return exchange;
}

void KeptExchange::SendLocked(bool may_be_kept) {
  stream_ = may_be_kept ? pool_->Take(endpoint_, shared_from_this()) : nullptr;
  kept_ = stream_ != nullptr;
  if (!kept_) stream_ = pool_->Open(endpoint_, channel_, shared_from_this());
  reading_ = true;
  written_ = false;
  stream_->Write(message_);
}

void KeptExchange::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  if (!finished_) stream_->Cancel();
}

void KeptExchange::ReadNext() {
  MutexLock lock(&mutex_);
  // The message after the last is the next user's.
  if (!last_ && !std::exchange(reading_, true)) stream_->Read();
}

void KeptExchange::OnMessage(const grpc::ByteBuffer& message) {
  std::vector<Credit> credits;  // Go without the lock.
  {
    MutexLock lock(&mutex_);
    answered_ = true;
    reading_ = false;
    message_.Clear();
    credits.swap(credits_);
  }
  const Credit next(nullptr, [self = shared_from_this()](void*) { self->ReadNext(); });
  const absl::StatusOr<bool> last = receive_(message, next);
  if (!last.ok()) return Cancel();
  if (!*last) return;
  {
    MutexLock lock(&mutex_);
    last_ = true;
  }
  FinishIfThrough();
}

void KeptExchange::OnWritten() {
  bool first = false;
  {
    MutexLock lock(&mutex_);
    first = !std::exchange(told_, true);
  }
  if (first) sent_();
  {
    MutexLock lock(&mutex_);
    written_ = true;
  }
  FinishIfThrough();
}

void KeptExchange::FinishIfThrough() {
  std::shared_ptr<ExchangeStream> stream;
  {
    MutexLock lock(&mutex_);
    // A call that was cancelled is nobody's any more: its end follows.
    if (!written_ || !last_ || cancelled_ || std::exchange(finished_, true)) return;
    stream = stream_;
  }
  stream->Detach();
  // Whoever still holds a credit of this one's answers holds nothing up.
  stream->Read();
  pool_->Give(endpoint_, std::move(stream));
  Finish({absl::OkStatus(), absl::OkStatus(), true});
}

void KeptExchange::OnEnded(const absl::Status& status) {
  End end;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (kept_ && !answered_ && !cancelled_ && IsStale(status)) {
      if (!absl::IsResourceExhausted(status)) stale_ = status;  // That one took nothing.
      return SendLocked(/*may_be_kept=*/false);
    }
    finished_ = true;
    // Everything has come, and only the word that the message had left has not.
    if (!last_ || cancelled_) {
      end.status = status.ok()
                       ? absl::UnavailableError("the server ended the call before its last answer")
                       : status;
    }
    end.answered = answered_;
    if (!cancelled_) end.stale = stale_;
  }
  Finish(end);
}

void KeptExchange::Finish(const End& end) {
  // Nothing is on its way to them any more.
  sent_ = nullptr;
  receive_ = nullptr;
  std::exchange(done_, nullptr)(end);
}

}  // namespace annulus
