#include "worker/data_plane/exchange_call.h"

#include <utility>

namespace annulus {

void ExchangeCall::BeginShard() {
  auto put = std::make_shared<PutCall>(board_, pool_, static_cast<PutCall::Stream*>(this));
  const bool crowded = board_->crowded();
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    // On a crowded board, idle calls make room for new ones.
    if (crowded && served_) return EndLocked(absl::OkStatus());
    put_ = put;
    fetch_.reset();
  }
  put->Start();
  std::optional<PutMessage> early;
  bool closed = false;
  {
    MutexLock lock(&mutex_);
    early = std::exchange(early_, std::nullopt);
    between_ = early.has_value();
    closed = closed_;
    if (!finished_) put.reset();
  }
  // The put call may have entered the board after the cancellation.
  if (put != nullptr) return put->OnCancelled();
  if (early.has_value()) return HandOver(*std::move(early));
  if (closed) OnHalfClose();
}

void ExchangeCall::EndLocked(const absl::Status& status) {
  if (!std::exchange(finished_, true)) stream_->Finish(status);
}

void ExchangeCall::OnMessage(PutMessage message) {
  {
    MutexLock lock(&mutex_);
    if (between_) {
      early_ = std::move(message);
      return;
    }
  }
  HandOver(std::move(message));
}

void ExchangeCall::HandOver(PutMessage message) {
  std::shared_ptr<PutCall> put;
  std::shared_ptr<FetchCall> fetch;
  {
    MutexLock lock(&mutex_);
    between_ = false;
    if (finished_) return;
    put = put_;
    // PutCall refuses chunks without a ticket.
    if (fetch_ == nullptr && (!message.ticket.empty() || message.parts.empty())) {
      fetch_ = std::make_shared<FetchCall>(board_, pool_, static_cast<FetchCall::Stream*>(this),
                                           /*held=*/true);
      fetch = fetch_;
    }
  }
  if (fetch != nullptr) {
    v1::FetchShardRequest request;
    request.set_ticket(message.ticket);
    // The fetch call must wait on the board before outputs can be published.
    fetch->Start(request);
  }
  put->OnMessage(std::move(message));
}

void ExchangeCall::OnMalformed(const absl::Status& status) {
  MutexLock lock(&mutex_);
  EndLocked(status);
}

void ExchangeCall::OnHalfClose() {
  std::shared_ptr<PutCall> put;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    if (between_) return;  // BeginShard handles it later.
    if (IdleLocked()) return EndLocked(absl::OkStatus());
    put = put_;
  }
  put->OnHalfClose();
}

void ExchangeCall::OnWritten(bool ok) {
  std::shared_ptr<FetchCall> fetch;
  bool last = false, delivered = false;
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    // A broken call may end without OnCancelled.
    if (!ok) return EndLocked(absl::CancelledError("the client is gone"));
    fetch = fetch_;
    last = std::exchange(last_, false);
    delivered = last && !finished_;
  }
  if (!last) return fetch->OnWritten(true);
  fetch->OnDone(delivered);
  {
    MutexLock lock(&mutex_);
    served_ = true;
    if (ends_) EndLocked(absl::OkStatus());
  }
  BeginShard();
}

void ExchangeCall::OnCancelled() {
  MutexLock lock(&mutex_);
  EndLocked(absl::CancelledError("the client cancelled the call"));
}

void ExchangeCall::OnDone() {
  std::shared_ptr<PutCall> put;
  std::shared_ptr<FetchCall> fetch;
  {
    MutexLock lock(&mutex_);
    finished_ = true;
    put = std::move(put_);
    fetch = std::move(fetch_);
  }
  if (put != nullptr) put->OnCancelled();
  if (fetch != nullptr) fetch->OnDone(/*delivered=*/false);
}

void ExchangeCall::ReadNext() {
  MutexLock lock(&mutex_);
  // After the client has closed its side, only the next shard's PutCall reads, and BeginShard ends
  // it.
  if (!finished_ && !closed_) stream_->ReadNext();
}

void ExchangeCall::Finish(const absl::Status& status, const v1::ShardStatus&) {
  std::shared_ptr<FetchCall> fetch;
  {
    MutexLock lock(&mutex_);
    if (!status.ok()) {
      // The client need not send another shard. An idle call that timed out, or was dismissed, ends
      // with OK.
      const bool late = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
      return EndLocked(late && IdleLocked() ? absl::OkStatus() : status);
    }
    fetch = fetch_;
  }
  if (fetch != nullptr) fetch->Release();
}

void ExchangeCall::Write(const std::vector<LeavingChunk>& chunks) { Send(chunks, nullptr); }

void ExchangeCall::WriteLast(const std::vector<LeavingChunk>& chunks,
                             const v1::ShardReport& report) {
  Send(chunks, &report);
}

void ExchangeCall::Send(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report) {
  MutexLock lock(&mutex_);
  if (finished_) return;
  if (report != nullptr) last_ = between_ = true;
  writing_ = true;
  stream_->Write(chunks, report);
}

void ExchangeCall::Cancel() {
  MutexLock lock(&mutex_);
  if (writing_) stream_->Cancel();
}

void ExchangeCall::CancelUnread(int64_t bytes) {
  MutexLock lock(&mutex_);
  if (!writing_) return;
  ends_ = true;  // CancelUnread cannot be undone.
  stream_->CancelUnread(bytes);
}

void ExchangeCall::Finish(const absl::Status& status) {
  MutexLock lock(&mutex_);
  EndLocked(status);
}

}  // namespace annulus
