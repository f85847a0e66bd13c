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

// One ExchangeShards call, without its stream: for each shard that the client brings a PutCall and
// a FetchCall on the same stream, one shard after the other. The first error of either ends the
// call. Outputs wait until the shard's inputs have come on this call and are the ones that the
// worker has: another call may have brought others. Between two shards the call waits as long as
// any waits for its ticket, and then ends well. Thread-safe; lives as long as anybody refers to it.
class ExchangeCall : public std::enable_shared_from_this<ExchangeCall>,
                     private PutCall::Stream,
                     private FetchCall::Stream {
 public:
  // The gRPC side. Called with the call's lock held. After Finish, only the Cancels.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Answered by OnMessage, OnMalformed or OnHalfClose, which come for nothing else, perhaps
    // before it returns to who asked. One at a time, none while a shard's outputs are awaited.
    virtual void ReadNext() = 0;
    // Answered by OnWritten. `report`: after the last chunks of a shard, else nullptr.
    virtual void Write(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    // Drops the connection's side of the call: what is being written will not be.
    virtual void Cancel() = 0;
    // The same where the client does not soon read what is being written, of so many bytes.
    virtual void CancelUnread(int64_t bytes) = 0;
  };

  // `stream` stays valid until OnDone; board and pool outlive the call.
  ExchangeCall(ShardBoard* board, CopyPool* pool, Stream* stream)
      : board_(board), pool_(pool), stream_(stream) {}

  void Start() { BeginShard(); }
  void OnMessage(PutMessage message);
  // What arrived is no message.
  void OnMalformed(const absl::Status& status);
  // The client will send no more.
  void OnHalfClose();
  void OnWritten(bool ok);
  // The client has cancelled, or is gone.
  void OnCancelled();
  // The stream is gone.
  void OnDone();

 private:
  // PutCall's and FetchCall's words, with their locks held, PutCall's before FetchCall's.
  void ReadNext() override EXCLUDES(mutex_);
  void Finish(const absl::Status& status, const v1::ShardStatus& shard) override EXCLUDES(mutex_);
  void Write(const std::vector<LeavingChunk>& chunks) override EXCLUDES(mutex_);
  void WriteLast(const std::vector<LeavingChunk>& chunks, const v1::ShardReport& report) override
      EXCLUDES(mutex_);
  void Finish(const absl::Status& status) override EXCLUDES(mutex_);
  void Cancel() override EXCLUDES(mutex_);
  void CancelUnread(int64_t bytes) override EXCLUDES(mutex_);

  // `report`: with a shard's last ones.
  void Send(const std::vector<LeavingChunk>& chunks, const v1::ShardReport* report)
      EXCLUDES(mutex_);

  void BeginShard() EXCLUDES(mutex_);
  // A message to the shard that has begun, or that it begins.
  void HandOver(PutMessage message) EXCLUDES(mutex_);
  void EndLocked(const absl::Status& status) REQUIRES(mutex_);
  // The client may leave: it has what it came for and has begun nothing new.
  bool IdleLocked() const REQUIRES(mutex_) { return served_ && fetch_ == nullptr; }

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  std::shared_ptr<PutCall> put_ GUARDED_BY(mutex_);
  std::shared_ptr<FetchCall> fetch_ GUARDED_BY(mutex_);  // From the shard's first message on.
  bool closed_ GUARDED_BY(mutex_) = false;               // The client's side.
  bool last_ GUARDED_BY(mutex_) = false;  // The shard's last message is being written.
  bool writing_ GUARDED_BY(mutex_) = false;
  // From the write of a shard's last message to the start of the next; what comes meanwhile.
  bool between_ GUARDED_BY(mutex_) = true;
  std::optional<PutMessage> early_ GUARDED_BY(mutex_);
  bool served_ GUARDED_BY(mutex_) = false;  // A shard before this one.
  bool ends_ GUARDED_BY(mutex_) = false;    // With the message that is being written.
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_EXCHANGE_CALL_H_
