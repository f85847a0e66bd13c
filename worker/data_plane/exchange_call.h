#ifndef ANNULUS_WORKER_DATA_PLANE_EXCHANGE_CALL_H_
#define ANNULUS_WORKER_DATA_PLANE_EXCHANGE_CALL_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/mutex.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/fetch_call.h"
#include "worker/data_plane/put_call.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// One ExchangeShards call, without its stream. The client sends several shards, one after another.
// For each, a PutCall and a FetchCall share the stream. The first error of either ends the call.
//
// Outputs of a shard are held until all its inputs have arrived on this call and equal the bytes
// that the worker has. (Another call may have sent other bytes.) Between two shards the call waits
// as long as any call waits for its ticket, and then ends with OK.
//
// Thread-safe. Reference-counted.
class ExchangeCall : public std::enable_shared_from_this<ExchangeCall>,
                     private PutCall::Stream,
                     private FetchCall::Stream {
 public:
  // The gRPC side. Called with the call's lock held. After Finish, only Cancel and CancelUnread are
  // called.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Requests one message. OnMessage, OnMalformed or OnHalfClose answers, possibly before ReadNext
    // returns; they are called for no other reason. At most one read is outstanding, and none while
    // the call waits for a shard's outputs.
    virtual void ReadNext() = 0;
    // Writes a message; OnWritten answers. `report` is set with the last chunks of a shard,
    // otherwise nullptr.
    virtual void Write(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    // Resets the HTTP/2 stream. The message that is being written is lost.
    virtual void Cancel() = 0;
    // Like Cancel, but only if the client does not soon read the message of `bytes` that is being
    // written.
    virtual void CancelUnread(int64_t bytes) = 0;
  };

  // `stream` must stay valid until OnDone. Board and pool must outlive the call.
  ExchangeCall(ShardBoard* board, CopyPool* pool, Stream* stream)
      : board_(board), pool_(pool), stream_(stream) {}

  void Start() { BeginShard(); }
  void OnMessage(PutMessage message);
  // The received bytes are not a valid message.
  void OnMalformed(const absl::Status& status);
  // The client has closed its side.
  void OnHalfClose();
  void OnWritten(bool ok);
  // The client has cancelled or disconnected.
  void OnCancelled();
  // The stream has been destroyed.
  void OnDone();

 private:
  // Called by PutCall and FetchCall with their locks held. Lock order: PutCall's, then FetchCall's,
  // then mutex_.
  void ReadNext() override EXCLUDES(mutex_);
  void Finish(const absl::Status& status, const v1::ShardStatus& shard) override EXCLUDES(mutex_);
  void Write(const std::vector<LeavingChunk>& chunks) override EXCLUDES(mutex_);
  void WriteLast(const std::vector<LeavingChunk>& chunks, const v1::ShardReport& report) override
      EXCLUDES(mutex_);
  void Finish(const absl::Status& status) override EXCLUDES(mutex_);
  void Cancel() override EXCLUDES(mutex_);
  void CancelUnread(int64_t bytes) override EXCLUDES(mutex_);

  // `report` is set with a shard's last chunks, otherwise nullptr.
  void Send(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report)
      EXCLUDES(mutex_);

  void BeginShard() EXCLUDES(mutex_);
  // Passes a message to the current shard. Starts the shard's FetchCall with its first message.
  void HandOver(PutMessage message) EXCLUDES(mutex_);
  void EndLocked(const absl::Status& status) REQUIRES(mutex_);
  // True if the call may end with OK: a shard has been served, and no new one has begun.
  bool IdleLocked() const REQUIRES(mutex_) { return served_ && fetch_ == nullptr; }

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  std::shared_ptr<PutCall> put_ GUARDED_BY(mutex_);
  std::shared_ptr<FetchCall> fetch_ GUARDED_BY(mutex_);  // Set by the shard's first message.
  bool closed_ GUARDED_BY(mutex_) = false;               // True if the client has closed its side.
  bool last_ GUARDED_BY(mutex_) = false;  // True while the shard's last message is being written.
  bool writing_ GUARDED_BY(mutex_) = false;
  // True from the write of a shard's last message to the start of the next shard. early_ holds a
  // message that arrives in between.
  bool between_ GUARDED_BY(mutex_) = true;
  std::optional<PutMessage> early_ GUARDED_BY(mutex_);
  bool served_ GUARDED_BY(mutex_) = false;  // True if an earlier shard has been served.
  // True if the call ends once the current message is written.
  bool ends_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_EXCHANGE_CALL_H_
