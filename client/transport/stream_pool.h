#ifndef ANNULUS_CLIENT_TRANSPORT_STREAM_POOL_H_
#define ANNULUS_CLIENT_TRANSPORT_STREAM_POOL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/raw_stream.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

// A call that is lent to one user after another: ExchangeShards to shards, AttendMany to jobs.
// Thread-safe.
class PooledStream {
 public:
  // Who has the call. Called as RawStream::Handlers are.
  class User {
   public:
    virtual ~User() = default;
    virtual void OnMessage(const grpc::ByteBuffer& message) = 0;
    virtual void OnWritten() = 0;
    // The call has ended; the stream knows its user no more.
    virtual void OnEnded(const absl::Status& status) = 0;
  };

  // Called when the call has ended, after the user's OnEnded.
  using Ended = std::function<void(const PooledStream*)>;
  // Without a deadline: the call outlives its users.
  static std::shared_ptr<PooledStream> Start(std::shared_ptr<grpc::Channel> channel,
                                             const std::string& method, const Metadata& metadata,
                                             std::shared_ptr<User> user, Ended ended);

  bool ended() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return ended_;
  }
  // Between two users. False: the call has ended meanwhile.
  bool Attach(std::shared_ptr<User> user) EXCLUDES(mutex_);
  void Detach() EXCLUDES(mutex_);
  // The user's. A read is under way from the start of the call on: it tells of the call's end, too.
  // After each message but the last the user asks for the next, and again when it has detached.
  void Write(grpc::ByteBuffer message) { stream_->Write(std::move(message)); }
  void Read() { stream_->Read(); }
  void HalfClose() { stream_->HalfClose(); }
  void Cancel() { stream_->Cancel(); }

 private:
  explicit PooledStream(std::shared_ptr<User> user) : user_(std::move(user)) {}
  std::shared_ptr<User> user() EXCLUDES(mutex_);
  void OnDone(const absl::Status& status, const Ended& ended) EXCLUDES(mutex_);

  std::shared_ptr<RawStream> stream_;
  Mutex mutex_;
  std::shared_ptr<User> user_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
};

// Calls that nobody has at the moment, by the endpoint that they go to. Thread-safe.
class StreamPool : public std::enable_shared_from_this<StreamPool> {
 public:
  using Token = std::function<std::shared_ptr<const void>()>;
  using ChannelTo = std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)>;
  struct Options {
    std::string method = "/annulus.v1.DataPlane/ExchangeShards";
    // Asked for a token for each call, which the call holds until it has ended.
    Token open = [] { return nullptr; };
    // For its calls alone; nullptr: they go where other calls of their users do.
    ChannelTo channels;
    Metadata metadata;  // Of every call.
    // Past it a call ends when its user leaves it.
    size_t max_idle = 64;
  };
  explicit StreamPool(Options options) : options_(std::move(options)) {}
  ~StreamPool();

  // Attaches `user` to an idle call to `endpoint`; nullptr where there is none.
  std::shared_ptr<PooledStream> Take(const std::string& endpoint,
                                     const std::shared_ptr<PooledStream::User>& user)
      EXCLUDES(mutex_);
  // Where a new one goes: `shared` is the channel of the user's other calls.
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& endpoint, const ChannelTo& shared) {
    return options_.channels != nullptr ? options_.channels(endpoint) : shared(endpoint);
  }
  // A new one, of `user`.
  std::shared_ptr<PooledStream> Open(const std::string& endpoint,
                                     std::shared_ptr<grpc::Channel> channel,
                                     std::shared_ptr<PooledStream::User> user);
  // Its user has detached and asked for the next message.
  void Give(const std::string& endpoint, std::shared_ptr<PooledStream> stream) EXCLUDES(mutex_);
  // Ends the calls that are idle.
  void CancelIdle() EXCLUDES(mutex_);

 private:
  void Forget(const std::string& endpoint, const PooledStream* stream) EXCLUDES(mutex_);

  const Options options_;
  Mutex mutex_;
  // The newest at the back: it is taken first.
  std::map<std::string, std::vector<std::shared_ptr<PooledStream>>> idle_ GUARDED_BY(mutex_);
  size_t count_ GUARDED_BY(mutex_) = 0;
};

// One message, and what answers it, on a call that others had before and will have again. A kept
// call that turns out to have ended before it answered is replaced by a new one, once. Thread-safe.
class PooledRequest : public PooledStream::User,
                      public std::enable_shared_from_this<PooledRequest> {
 public:
  struct End {
    absl::Status status;  // OK: the last answer has come.
    // How the kept call ended that was replaced and may have taken the message; else OK.
    absl::Status stale;
    bool answered = false;  // Something came back.
  };
  // The functions are called from threads of gRPC and must not wait.
  struct Options {
    std::shared_ptr<StreamPool> pool;
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    grpc::ByteBuffer message;
    std::vector<Credit> credits;  // Go with the first answer.
    std::function<void()> sent;   // Once, when the message has left.
    // For each answer, one at a time: whether it is the last. The next is read when `next` goes; an
    // error cancels the call.
    std::function<absl::StatusOr<bool>(const grpc::ByteBuffer& message, const Credit& next)>
        receive;
    std::function<void(const End&)> done;  // Last, once.
  };
  static std::shared_ptr<PooledRequest> Start(Options options);

  // The call is nobody's any more, and its end follows, unless the last answer is here.
  void Cancel() EXCLUDES(mutex_);

 private:
  explicit PooledRequest(Options options);
  void SendLocked(bool may_be_kept) REQUIRES(mutex_);
  void ReadNext() EXCLUDES(mutex_);
  void OnMessage(const grpc::ByteBuffer& message) override EXCLUDES(mutex_);
  void OnWritten() override EXCLUDES(mutex_);
  void OnEnded(const absl::Status& status) override EXCLUDES(mutex_);
  // Gives the call back when both directions are through with it.
  void FinishIfThrough() EXCLUDES(mutex_);
  void Finish(const End& end) EXCLUDES(mutex_);

  const std::shared_ptr<StreamPool> pool_;
  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
  // Until the end: what they hold may hold this.
  std::function<void()> sent_;
  std::function<absl::StatusOr<bool>(const grpc::ByteBuffer&, const Credit&)> receive_;
  std::function<void(const End&)> done_;

  Mutex mutex_;
  std::shared_ptr<PooledStream> stream_ GUARDED_BY(mutex_);
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // Until the first answer.
  std::vector<Credit> credits_ GUARDED_BY(mutex_);
  bool kept_ GUARDED_BY(mutex_) = false;  // The call is not new.
  absl::Status stale_ GUARDED_BY(mutex_);
  bool reading_ GUARDED_BY(mutex_) = true;  // A read is under way.
  bool answered_ GUARDED_BY(mutex_) = false;
  bool told_ GUARDED_BY(mutex_) = false;  // `sent` has been called.
  bool written_ GUARDED_BY(mutex_) = false;
  bool last_ GUARDED_BY(mutex_) = false;  // The last answer is here: nothing more is read.
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_STREAM_POOL_H_
