#include "client/exchange_stream.h"

#include <algorithm>
#include <utility>

namespace annulus {

std::shared_ptr<ExchangeStream> ExchangeStream::Start(std::shared_ptr<grpc::Channel> channel,
                                                      const std::string& method,
                                                      const Metadata& metadata,
                                                      std::shared_ptr<User> user, Ended ended) {
  std::shared_ptr<ExchangeStream> self(new ExchangeStream(std::move(user)));
  RawStream::Handlers handlers;
  handlers.on_read = [self](const grpc::ByteBuffer& message) {
    // Nobody has asked for anything.
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

bool ExchangeStream::Attach(std::shared_ptr<User> user) {
  MutexLock lock(&mutex_);
  if (ended_) return false;
  user_ = std::move(user);
  return true;
}

void ExchangeStream::Detach() {
  std::shared_ptr<User> gone;  // Goes without the lock.
  MutexLock lock(&mutex_);
  gone = std::move(user_);
}

std::shared_ptr<ExchangeStream::User> ExchangeStream::user() {
  MutexLock lock(&mutex_);
  return user_;
}

void ExchangeStream::OnDone(const absl::Status& status, const Ended& ended) {
  std::shared_ptr<User> user;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    user = std::move(user_);
  }
  if (user != nullptr) user->OnEnded(status);
  ended(this);
}

ExchangePool::~ExchangePool() { CancelIdle(); }

std::shared_ptr<ExchangeStream> ExchangePool::Take(
    const std::string& endpoint, const std::shared_ptr<ExchangeStream::User>& user) {
  for (;;) {
    std::shared_ptr<ExchangeStream> stream;
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

std::shared_ptr<ExchangeStream> ExchangePool::Open(const std::string& endpoint,
                                                   std::shared_ptr<grpc::Channel> channel,
                                                   std::shared_ptr<ExchangeStream::User> user) {
  return ExchangeStream::Start(
      std::move(channel), options_.method, options_.metadata, std::move(user),
      [pool = weak_from_this(), endpoint, token = options_.open()](const ExchangeStream* ended) {
        if (const auto alive = pool.lock()) alive->Forget(endpoint, ended);
      });
}

void ExchangePool::Give(const std::string& endpoint, std::shared_ptr<ExchangeStream> stream) {
  {
    MutexLock lock(&mutex_);
    // One that has ended may have been forgotten already. One that ends from now on will be.
    if (stream->ended()) return;
    if (count_ < options_.max_idle) {
      ++count_;
      idle_[endpoint].push_back(std::move(stream));
      return;
    }
  }
  stream->HalfClose();
}

void ExchangePool::Forget(const std::string& endpoint, const ExchangeStream* stream) {
  std::shared_ptr<ExchangeStream> gone;  // Goes without the lock.
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

void ExchangePool::CancelIdle() {
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

}  // namespace annulus
