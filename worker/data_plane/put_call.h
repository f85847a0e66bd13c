#ifndef ANNULUS_WORKER_DATA_PLANE_PUT_CALL_H_
#define ANNULUS_WORKER_DATA_PLANE_PUT_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/mutex.h"
#include "proto/wire/chunk_header.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/rate_floor.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// One message of PutShard: a ticket, chunks, or both.
struct PutMessage {
  struct Part {
    ChunkHeader header;
    std::vector<absl::string_view> pieces;
  };
  std::string ticket;  // Empty: none.
  std::vector<Part> parts;
  std::shared_ptr<const void> storage;  // Keeps the pieces alive.

  int64_t bytes() const;
};

// What GetShardStatus and PutShard answer.
v1::ShardStatus StatusOfShard(const StagedShard& shard);

// One PutShard call, without its stream: a message with the ticket first, then others with chunks;
// the next is read when the one before lies in staging, so that HTTP/2 holds the client back.
// Ends well when it has itself brought every input, or is closed while the shard is complete: that
// another call has completed the shard says nothing about the bytes that this one still has.
// Thread-safe; lives as long as anybody refers to it.
class PutCall : public DataCall, public std::enable_shared_from_this<PutCall> {
 public:
  // The gRPC side. Called with the call's lock held, never after Finish.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void ReadNext() = 0;
    // Once. An OK status comes with the shard's.
    virtual void Finish(const absl::Status& status, const v1::ShardStatus& shard) = 0;
  };

  // `stream` stays valid until its Finish; board and pool outlive the call.
  PutCall(ShardBoard* board, CopyPool* pool, Stream* stream);

  void Start();
  void OnMessage(PutMessage message);
  // What arrived is no message.
  void OnMalformed(const absl::Status& status);
  // The client will send no more.
  void OnHalfClose();
  // The client has cancelled, or is gone.
  void OnCancelled();

  void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
               const v1::ShardReport& report) override;
  void End(const absl::Status& why) override;
  std::optional<absl::Status> Stalled(absl::Time now) override;

 private:
  enum class Phase { kTicket, kJoining, kReading, kCopying, kFinished };

  void ReadLocked() REQUIRES(mutex_);
  void FinishLocked(const absl::Status& status) REQUIRES(mutex_);
  void StartCopy(PutMessage message);
  void Copy(const PutMessage& message);
  // Finishes, and lets go of the board, which must happen without the lock.
  void Conclude(const absl::Status& status);

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kTicket;
  RateFloor rate_ GUARDED_BY(mutex_);
  std::shared_ptr<StagedShard> shard_ GUARDED_BY(mutex_);
  ShardId id_ GUARDED_BY(mutex_);
  PutMessage first_ GUARDED_BY(mutex_);         // Until the shard is there.
  bool presenting_ GUARDED_BY(mutex_) = false;  // The ticket, on a thread that may copy.
  UploadCall upload_;                           // Of the one copy at work.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_PUT_CALL_H_
