#ifndef ANNULUS_WORKER_DATA_PLANE_FETCH_CALL_H_
#define ANNULUS_WORKER_DATA_PLANE_FETCH_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/data_plane.pb.h"
#include "base/mutex.h"
#include "worker/data_plane/copy_pool.h"
#include "worker/data_plane/rate_floor.h"
#include "worker/data_plane/shard_board.h"

namespace annulus {

// A chunk to send: whole rows of one output, or some heads of one row if a row exceeds a chunk. A
// view of staging memory.
struct LeavingChunk {
  TensorId tensor = TensorId::kUnspecified;
  int64_t row_begin = 0, row_count = 0;
  int32_t head_begin = 0, head_count = 0;  // 0: all heads.
  uint32_t crc32c = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<StagedShard> owner;  // Keeps `data` alive.
};

// One FetchShard call, without its stream. Waits for the outputs, then sends messages of chunks.
// The checksums of the next message are computed while one is written. The report follows with the
// last message. Thread-safe. Reference-counted.
class FetchCall : public DataCall, public std::enable_shared_from_this<FetchCall> {
 public:
  // Limit of a request's parts; equals the limit of ShardStatus.missing.
  static constexpr int kMaxParts = 1000;

  // The gRPC side. Called with the call's lock held. After WriteLast or Finish, only Cancel and
  // CancelUnread are called.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Writes a message; OnWritten answers.
    virtual void Write(const std::vector<LeavingChunk>& chunks) = 0;
    // Writes the last message and finishes with OK. No Write may be in progress.
    virtual void WriteLast(const std::vector<LeavingChunk>& chunks,
                           const v1::ShardReport& report) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    // Resets the HTTP/2 stream. The message that is being written is lost.
    virtual void Cancel() = 0;
    // Like Cancel, but only if the client does not soon read the message of `bytes` that is being
    // written.
    virtual void CancelUnread(int64_t bytes) = 0;
  };

  // `stream` must stay valid until OnDone. Board and pool must outlive the call. If `held`, the
  // call writes nothing before Release.
  FetchCall(ShardBoard* board, CopyPool* pool, Stream* stream, bool held = false);

  // Ends the call with LIMIT_EXCEEDED if the request has more than kMaxParts parts.
  void Start(const v1::FetchShardRequest& request);
  void Release();
  void OnWritten(bool ok);
  void OnCancelled();
  // The stream has been destroyed. `delivered`: it ended with OK, and the client was connected.
  void OnDone(bool delivered);

  void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard,
               const v1::ShardReport& report) override;
  void End(const absl::Status& why) override;
  std::optional<absl::Status> Stalled(absl::Time now) override;

 private:
  struct Message {
    std::vector<LeavingChunk> chunks;
    int64_t bytes = 0;
    bool last = false;
  };
  // Rows of tensor `index` that are still to be sent.
  struct Part {
    size_t index = 0;
    int64_t row_begin = 0, row_end = 0;
    int32_t head = 0;  // The next head of the first row, if rows are sent by heads.
  };

  absl::Status Plan() REQUIRES(mutex_);
  // Takes the next message from parts_ and computes its checksums, in the pool if it is large.
  void PrepareNext() REQUIRES(mutex_);
  // Takes the next chunk of at most `bytes` from parts_. nullopt if parts_ is empty, or if no whole
  // row (or head, if a row exceeds a chunk) fits into `bytes`.
  std::optional<LeavingChunk> CutChunk(int64_t bytes) REQUIRES(mutex_);
  // Take as many rows, or heads of one row, as fit, and advance the part.
  static LeavingChunk CutRows(const TensorInfo& tensor, int64_t bytes, Part* part);
  static LeavingChunk CutHeads(const TensorInfo& tensor, int64_t bytes, Part* part);
  void OnPrepared(Message message);
  // Writes the prepared message, unless the call is held or a write is in progress.
  void Pump() REQUIRES(mutex_);
  void FinishLocked(const absl::Status& status) REQUIRES(mutex_);
  void Conclude(const absl::Status& status);

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  v1::FetchShardRequest request_ GUARDED_BY(mutex_);  // Empty once the shard is there.
  std::shared_ptr<StagedShard> shard_ GUARDED_BY(mutex_);
  v1::ShardReport report_ GUARDED_BY(mutex_);
  ShardId id_ GUARDED_BY(mutex_);
  std::vector<Part> parts_ GUARDED_BY(mutex_);  // In reverse order: the next part is last.
  std::vector<std::pair<size_t, CellRect>> sent_ GUARDED_BY(mutex_);
  std::optional<Message> prepared_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_);
  bool writing_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // True after Finish or WriteLast.
  bool done_ GUARDED_BY(mutex_) = false;      // True once the stream has been destroyed.
  int64_t writing_bytes_ GUARDED_BY(mutex_) = 0;
  RateFloor rate_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_FETCH_CALL_H_
