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

// A gRPC call that is lent to one user after another: ExchangeShards to shards, AttendMany to jobs.
// Thread-safe.
class PooledStream {
 public:
  // The current user of the call. Called like RawStream::Handlers.
  class User {
   public:
    virtual ~User() = default;
    virtual void OnMessage(const grpc::ByteBuffer& message) = 0;
    virtual void OnWritten() = 0;
    // The call has ended, and the stream no longer refers to its user.
    virtual void OnEnded(const absl::Status& status) = 0;
  };

  // Called after the end of the call, after the user's OnEnded().
  using Ended = std::function<void(const PooledStream*)>;
  // Starts a call for `user`. The call has no deadline, since it outlives its users.
  static std::shared_ptr<PooledStream> Start(std::shared_ptr<grpc::Channel> channel,
                                             const std::string& method, const Metadata& metadata,
                                             std::shared_ptr<User> user, Ended ended);

  bool ended() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return ended_;
  }
  // Change the user. Attach() is false if the call has ended meanwhile.
  bool Attach(std::shared_ptr<User> user) EXCLUDES(mutex_);
  void Detach() EXCLUDES(mutex_);
  // For the user. A read is outstanding from the start of the call on; it also detects the call's
  // end. The user calls Read() after each message but the last, and once more after Detach().
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

// The idle calls, by endpoint. Thread-safe.
class StreamPool : public std::enable_shared_from_this<StreamPool> {
 public:
  using Token = std::function<std::shared_ptr<const void>()>;
  using ChannelTo = std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)>;
  struct Options {
    std::string method = "/annulus.v1.DataPlane/ExchangeShards";
    // Returns a token for each new call, which the call holds until it has ended.
    Token open = [] { return nullptr; };
    // Channels for these calls alone. Null: they share the channels of their users' other calls.
    ChannelTo channels;
    Metadata metadata;  // Sent with every call.
    // The maximum number of idle calls. Above it, a call ends when its user gives it back.
    size_t max_idle = 64;
  };
  explicit StreamPool(Options options) : options_(std::move(options)) {}
  ~StreamPool();

  // Attaches `user` to an idle call to `endpoint`. Null if there is none.
  std::shared_ptr<PooledStream> Take(const std::string& endpoint,
                                     const std::shared_ptr<PooledStream::User>& user)
      EXCLUDES(mutex_);
  // The channel for a new call. `shared` gives the channel of the user's other calls.
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& endpoint, const ChannelTo& shared) {
    return options_.channels != nullptr ? options_.channels(endpoint) : shared(endpoint);
  }
  // Opens a new call for `user`.
  std::shared_ptr<PooledStream> Open(const std::string& endpoint,
                                     std::shared_ptr<grpc::Channel> channel,
                                     std::shared_ptr<PooledStream::User> user);
  // Returns a call to the pool. Requires: the user has detached and has called Read().
  void Give(const std::string& endpoint, std::shared_ptr<PooledStream> stream) EXCLUDES(mutex_);
  // Cancels the idle calls.
  void CancelIdle() EXCLUDES(mutex_);

 private:
  void Forget(const std::string& endpoint, const PooledStream* stream) EXCLUDES(mutex_);

  const Options options_;
  Mutex mutex_;
  // The newest is at the back and is taken first.
  std::map<std::string, std::vector<std::shared_ptr<PooledStream>>> idle_ GUARDED_BY(mutex_);
  size_t count_ GUARDED_BY(mutex_) = 0;
};

// One message and its answers on a pooled call. If a pooled call turns out to have ended before it
// answered, the message is sent again on a new call, once. Thread-safe.
class PooledRequest : public PooledStream::User,
                      public std::enable_shared_from_this<PooledRequest> {
 public:
  struct End {
    absl::Status status;  // OK: the last answer has come.
    // The end of a pooled call that was replaced and may have taken the message. Else OK.
    absl::Status stale;
    bool answered = false;  // True if at least one answer has come.
  };
  // The functions are called on threads of gRPC and must not block.
  struct Options {
    std::shared_ptr<StreamPool> pool;
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    grpc::ByteBuffer message;
    std::vector<Credit> credits;  // Dropped at the first answer.
    std::function<void()> sent;   // Called once, when the message has been written.
    // Called for each answer, one at a time. Returns true for the last one. The next answer is read
    // when `next` is dropped. An error cancels the call.
    std::function<absl::StatusOr<bool>(const grpc::ByteBuffer& message, const Credit& next)>
        receive;
    std::function<void(const End&)> done;  // The last call, once.
  };
  static std::shared_ptr<PooledRequest> Start(Options options);

  // Cancels the call, which then goes to no other user. `done` follows, unless the last answer is
  // here.
  void Cancel() EXCLUDES(mutex_);

 private:
  explicit PooledRequest(Options options);
  void SendLocked(bool may_be_kept) REQUIRES(mutex_);
  void ReadNext() EXCLUDES(mutex_);
  void OnMessage(const grpc::ByteBuffer& message) override EXCLUDES(mutex_);
  void OnWritten() override EXCLUDES(mutex_);
  void OnEnded(const absl::Status& status) override EXCLUDES(mutex_);
  // Gives the call back after the message has been written and the last answer has come.
  void FinishIfThrough() EXCLUDES(mutex_);
  void Finish(const End& end) EXCLUDES(mutex_);

  const std::shared_ptr<StreamPool> pool_;
  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
  // Cleared at the end, since what they capture may hold this object.
  std::function<void()> sent_;
  std::function<absl::StatusOr<bool>(const grpc::ByteBuffer&, const Credit&)> receive_;
  std::function<void(const End&)> done_;

  Mutex mutex_;
  std::shared_ptr<PooledStream> stream_ GUARDED_BY(mutex_);
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // Kept until the first answer, for a resend.
  std::vector<Credit> credits_ GUARDED_BY(mutex_);
  bool kept_ GUARDED_BY(mutex_) = false;  // True if the call is from the pool.
  absl::Status stale_ GUARDED_BY(mutex_);
  bool reading_ GUARDED_BY(mutex_) = true;  // True if a read is outstanding.
  bool answered_ GUARDED_BY(mutex_) = false;
  bool told_ GUARDED_BY(mutex_) = false;  // True if `sent` has been called.
  bool written_ GUARDED_BY(mutex_) = false;
  // True if the last answer is here. Nothing more is read.
  bool last_ GUARDED_BY(mutex_) = false;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_STREAM_POOL_H_
