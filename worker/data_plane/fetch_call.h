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

// Whole rows of one output, or some heads of a row that is more than a chunk, on their way to a
// client: a view of staging memory.
struct LeavingChunk {
  TensorId tensor = TensorId::kUnspecified;
  int64_t row_begin = 0, row_count = 0;
  int32_t head_begin = 0, head_count = 0;  // 0: all.
  uint32_t crc32c = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<StagedShard> owner;  // Keeps `data` alive.
};

// One FetchShard call, without its stream: waits for the outputs, then sends messages of chunks,
// the next one's checksums made while one is on its way; the report goes with the last.
// Thread-safe; lives as long as anybody refers to it.
class FetchCall : public DataCall, public std::enable_shared_from_this<FetchCall> {
 public:
  static constexpr int kMaxParts = 1000;  // Of a request: as many as ShardStatus.missing has.

  // The gRPC side. Called with the call's lock held. After WriteLast or Finish, only the Cancels.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Answered by OnWritten.
    virtual void Write(const std::vector<LeavingChunk>& chunks) = 0;
    // The last message, with OK. No Write is under way.
    virtual void WriteLast(const std::vector<LeavingChunk>& chunks,
                           const v1::ShardReport& report) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    // Drops the connection's side of the call: what is being written will not be.
    virtual void Cancel() = 0;
    // The same where the client does not soon read what is being written, of so many bytes.
    virtual void CancelUnread(int64_t bytes) = 0;
  };

  // `stream` stays valid until OnDone; board and pool outlive the call. `held`: it writes nothing
  // before its Release.
  FetchCall(ShardBoard* board, CopyPool* pool, Stream* stream, bool held = false);

  // A request of more parts than kMaxParts ends it: LIMIT_EXCEEDED.
  void Start(const v1::FetchShardRequest& request);
  void Release();
  void OnWritten(bool ok);
  void OnCancelled();
  // The stream is gone; `delivered`: it ended with OK and the client was there.
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
    int32_t head = 0;  // Of the first row, where rows are sent by heads.
  };

  absl::Status Plan() REQUIRES(mutex_);
  // Cuts the next message off parts_, and has its checksums made.
  void PrepareNext() REQUIRES(mutex_);
  // The next chunk, of at most `bytes`; none where parts_ is empty or no row, or no head of a row
  // that is more than a chunk, fits beside others.
  std::optional<LeavingChunk> CutChunk(int64_t bytes) REQUIRES(mutex_);
  // As many rows, or heads of one, as fit; moves the part on.
  static LeavingChunk CutRows(const TensorInfo& tensor, int64_t bytes, Part* part);
  static LeavingChunk CutHeads(const TensorInfo& tensor, int64_t bytes, Part* part);
  void OnPrepared(Message message);
  // Writes what is prepared where it may and nothing is being written.
  void Pump() REQUIRES(mutex_);
  void FinishLocked(const absl::Status& status) REQUIRES(mutex_);
  void Conclude(const absl::Status& status);

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  v1::FetchShardRequest request_ GUARDED_BY(mutex_);  // Until the shard is there.
  std::shared_ptr<StagedShard> shard_ GUARDED_BY(mutex_);
  v1::ShardReport report_ GUARDED_BY(mutex_);
  ShardId id_ GUARDED_BY(mutex_);
  std::vector<Part> parts_ GUARDED_BY(mutex_);  // The next is at the back.
  std::vector<std::pair<size_t, CellRect>> sent_ GUARDED_BY(mutex_);
  std::optional<Message> prepared_ GUARDED_BY(mutex_);
  bool held_ GUARDED_BY(mutex_);
  bool writing_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // Finish or WriteLast.
  bool done_ GUARDED_BY(mutex_) = false;      // The stream is gone.
  int64_t writing_bytes_ GUARDED_BY(mutex_) = 0;
  RateFloor rate_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_FETCH_CALL_H_
