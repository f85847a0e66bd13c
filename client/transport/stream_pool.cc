#include "client/transport/stream_pool.h"

#include <algorithm>
#include <utility>

namespace annulus {

std::shared_ptr<PooledStream> PooledStream::Start(std::shared_ptr<grpc::Channel> channel,
                                                  const std::string& method,
                                                  const Metadata& metadata,
                                                  std::shared_ptr<User> user, Ended ended) {
  std::shared_ptr<PooledStream> self(new PooledStream(std::move(user)));
  RawStream::Handlers handlers;
  handlers.on_read = [self](const grpc::ByteBuffer& message) {
    // A message without a user: the server breaks the protocol.
    if (const auto user = self->user(); user == nullptr) {
      self->Cancel();
    } else {
      user->OnMessage(message);
    }
  };
  handlers.on_written = [self] {
    if (const auto user = self->user(); user != nullptr) user->OnWritten();
  };
  handlers.on_done = [self, ended = std::move(ended)](const absl::Status& status) {
    self->OnDone(status, ended);
  };
  self->stream_ = RawStream::Start({std::move(channel), method, absl::InfiniteFuture(), metadata},
                                   std::move(handlers));
  self->stream_->Read();
  return self;
}

bool PooledStream::Attach(std::shared_ptr<User> user) {
  MutexLock lock(&mutex_);
  if (ended_) return false;
  user_ = std::move(user);
  return true;
}

void PooledStream::Detach() {
  std::shared_ptr<User> gone;  // Destroyed without the lock.
  MutexLock lock(&mutex_);
  gone = std::move(user_);
}

std::shared_ptr<PooledStream::User> PooledStream::user() {
  MutexLock lock(&mutex_);
  return user_;
}

void PooledStream::OnDone(const absl::Status& status, const Ended& ended) {
  std::shared_ptr<User> user;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    user = std::move(user_);
  }
  if (user != nullptr) user->OnEnded(status);
  ended(this);
}

StreamPool::~StreamPool() { CancelIdle(); }

std::shared_ptr<PooledStream> StreamPool::Take(const std::string& endpoint,
                                               const std::shared_ptr<PooledStream::User>& user) {
  for (;;) {
    std::shared_ptr<PooledStream> stream;
    {
      MutexLock lock(&mutex_);
      const auto found = idle_.find(endpoint);
      if (found == idle_.end()) return nullptr;
      stream = std::move(found->second.back());
      found->second.pop_back();
      if (found->second.empty()) idle_.erase(found);
      --count_;
    }
    if (stream->Attach(user)) return stream;
  }
}

std::shared_ptr<PooledStream> StreamPool::Open(const std::string& endpoint,
                                               std::shared_ptr<grpc::Channel> channel,
                                               std::shared_ptr<PooledStream::User> user) {
  return PooledStream::Start(
      std::move(channel), options_.method, options_.metadata, std::move(user),
      [pool = weak_from_this(), endpoint, token = options_.open()](const PooledStream* ended) {
        if (const auto alive = pool.lock()) alive->Forget(endpoint, ended);
      });
}

void StreamPool::Give(const std::string& endpoint, std::shared_ptr<PooledStream> stream) {
  {
    MutexLock lock(&mutex_);
    // A call that has ended may have been forgotten already. One that ends later will be forgotten.
    if (stream->ended()) return;
    if (count_ < options_.max_idle) {
      ++count_;
      idle_[endpoint].push_back(std::move(stream));
      return;
    }
  }
  stream->HalfClose();
}

void StreamPool::Forget(const std::string& endpoint, const PooledStream* stream) {
  std::shared_ptr<PooledStream> gone;  // Destroyed without the lock.
  MutexLock lock(&mutex_);
  const auto found = idle_.find(endpoint);
  if (found == idle_.end()) return;
  auto& streams = found->second;
  const auto it = std::find_if(streams.begin(), streams.end(),
                               [stream](const auto& idle) { return idle.get() == stream; });
  if (it == streams.end()) return;
  gone = std::move(*it);
  streams.erase(it);
  if (streams.empty()) idle_.erase(found);
  --count_;
}

void StreamPool::CancelIdle() {
  decltype(idle_) idle;
  {
    MutexLock lock(&mutex_);
    idle = std::exchange(idle_, {});
    count_ = 0;
  }
  for (const auto& [endpoint, streams] : idle) {
    for (const auto& stream : streams) stream->Cancel();
  }
}

namespace {

// True if a pooled call ended for a reason other than this message: it was idle for too long, had
// to make room for other calls, its server is gone, or its previous user cancelled it.
bool IsStale(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace

PooledRequest::PooledRequest(Options options)
    : pool_(std::move(options.pool)),
      endpoint_(std::move(options.endpoint)),
      channel_(std::move(options.channel)),
      sent_(std::move(options.sent)),
      receive_(std::move(options.receive)),
      done_(std::move(options.done)),
      message_(std::move(options.message)),
      credits_(std::move(options.credits)) {}

std::shared_ptr<PooledRequest> PooledRequest::Start(Options options) {
  std::shared_ptr<PooledRequest> exchange(new PooledRequest(std::move(options)));
  MutexLock lock(&exchange->mutex_);
  exchange->SendLocked(/*may_be_kept=*/true);
  return exchange;
}

void PooledRequest::SendLocked(bool may_be_kept) {
  stream_ = may_be_kept ? pool_->Take(endpoint_, shared_from_this()) : nullptr;
  kept_ = stream_ != nullptr;
  if (!kept_) stream_ = pool_->Open(endpoint_, channel_, shared_from_this());
  reading_ = true;
  written_ = false;
  stream_->Write(message_);
}

void PooledRequest::Cancel() {
  MutexLock lock(&mutex_);
  cancelled_ = true;
  if (!finished_) stream_->Cancel();
}

void PooledRequest::ReadNext() {
  MutexLock lock(&mutex_);
  // The message after the last belongs to the next user.
  if (!last_ && !std::exchange(reading_, true)) stream_->Read();
}

void PooledRequest::OnMessage(const grpc::ByteBuffer& message) {
  std::vector<Credit> credits;  // Dropped without the lock.
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

void PooledRequest::OnWritten() {
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

void PooledRequest::FinishIfThrough() {
  std::shared_ptr<PooledStream> stream;
  {
    MutexLock lock(&mutex_);
    // A cancelled call goes to no other user; its end follows.
    if (!written_ || !last_ || cancelled_ || std::exchange(finished_, true)) return;
    stream = stream_;
  }
  stream->Detach();
  // A credit that is still held for an answer of this request does not delay the next one.
  stream->Read();
  pool_->Give(endpoint_, std::move(stream));
  Finish({absl::OkStatus(), absl::OkStatus(), true});
}

void PooledRequest::OnEnded(const absl::Status& status) {
  End end;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (kept_ && !answered_ && !cancelled_ && IsStale(status)) {
      // RESOURCE_EXHAUSTED: the server has taken nothing.
      if (!absl::IsResourceExhausted(status)) stale_ = status;
      return SendLocked(/*may_be_kept=*/false);
    }
    finished_ = true;
    // If the last answer is here, only the confirmation of the write is missing, which does not
    // matter.
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

void PooledRequest::Finish(const End& end) {
  // No callback can be running or follow.
  sent_ = nullptr;
  receive_ = nullptr;
  std::exchange(done_, nullptr)(end);
}

}  // namespace annulus
