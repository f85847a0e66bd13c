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
  std::string ticket;  // Empty: no ticket.
  std::vector<Part> parts;
  std::shared_ptr<const void> storage;  // Keeps the pieces alive.

  int64_t bytes() const;
};

// The response of GetShardStatus and PutShard.
v1::ShardStatus StatusOfShard(const StagedShard& shard);

// One PutShard call, without its gRPC stream: a client uploads the inputs of one shard.
//
// Course of a call, by phase:
// 1. kTicket: Start enters the board (ShardBoard::Enter) and reads. The first message has the
//    ticket and may have chunks.
// 2. kJoining: OnMessage presents the ticket (ShardBoard::Present). The board calls OnShard at
//    once, or when the worker has executed the shard's Reserve.
// 3. kCopying: Copy verifies the chunks and copies them to staging (StagedShard::Write). Messages
//    above CopyPool::kInlineArrivedBytes are copied on a pool thread.
// 4. kReading: the call reads the next message only after the last one is in staging. So HTTP/2
//    flow control limits the client's rate, and a call holds at most one message. Then back to 3.
// 5. kFinished: Stream::Finish has been called.
//
// Example: inputs q, k and v of 8 MiB. Message 1 has the ticket. The next 24 have 1 MiB of
// chunks each. After the last the call has sent all 24 MiB, finishes with OK and the shard's
// status, and calls ShardBoard::Completed.
//
// OK if this call itself has brought every input byte, or if the client closes its side while the
// shard is complete. A shard that another call has completed does not end this call, because this
// call may have different bytes to verify.
//
// Errors:
// - STREAM_SEQUENCE: the first message has chunks but no ticket; a later one has a ticket or no
//   chunk; the stream ends before a shard is joined.
// - MISSING_ROWS: the client closes its side before the shard is complete.
// - StagedShard::Write's errors. Chunks before the wrong one stay in staging.
// - Errors of the board: the ticket, timeouts, the job's end (worker/data_plane/shard_board.h).
// - UPLOAD_STALLED: the client is slower than RateLimits while the call reads. Time in which the
//   worker copies does not count.
//
// Calls of the same shard run in parallel and may bring the same rows again. Thread-safe.
// Reference-counted.
class PutCall : public DataCall, public std::enable_shared_from_this<PutCall> {
 public:
  // The gRPC side. Called with the call's lock held, never after Finish.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void ReadNext() = 0;
    // Called once. `shard` is set if the status is OK.
    virtual void Finish(const absl::Status& status, const v1::ShardStatus& shard) = 0;
  };

  // `stream` must stay valid until its Finish. Board and pool must outlive the call.
  PutCall(ShardBoard* board, CopyPool* pool, Stream* stream);

  void Start();
  void OnMessage(PutMessage message);
  // The received bytes are not a valid message.
  void OnMalformed(const absl::Status& status);
  // The client has closed its side.
  void OnHalfClose();
  // The client has cancelled or disconnected.
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
  // Finishes and leaves the board. Must be called without the lock.
  void Conclude(const absl::Status& status);

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kTicket;
  RateFloor rate_ GUARDED_BY(mutex_);
  std::shared_ptr<StagedShard> shard_ GUARDED_BY(mutex_);
  ShardId id_ GUARDED_BY(mutex_);
  PutMessage first_ GUARDED_BY(mutex_);  // The first message, until the shard is there.
  // True while OnMessage presents the ticket, on a thread that may copy.
  bool presenting_ GUARDED_BY(mutex_) = false;
  UploadCall upload_;  // Used by the one copy in progress.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_PUT_CALL_H_
