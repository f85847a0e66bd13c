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

// Whole rows of one output on their way to a client: a view of staging memory.
struct LeavingChunk {
  TensorId tensor = TensorId::kUnspecified;
  int64_t row_begin = 0, row_count = 0;
  uint32_t crc32c = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<StagedShard> owner;  // Keeps `data` alive.
};

// One FetchShard call, without its stream: waits for the outputs, then sends them in chunks, the
// next one's checksum made while one is on its way. Thread-safe; lives as long as anybody refers to
// it.
class FetchCall : public DataCall, public std::enable_shared_from_this<FetchCall> {
 public:
  // The gRPC side. Called with the call's lock held. After a `last` Write, or Finish, only Cancel.
  class Stream {
   public:
    virtual ~Stream() = default;
    // Ends the call with OK where it is the last. Otherwise answered by OnWritten.
    virtual void Write(const LeavingChunk& chunk, bool last) = 0;
    virtual void Finish(const absl::Status& status) = 0;
    // Drops the connection's side of the call: what is being written will not be.
    virtual void Cancel() = 0;
  };
  static constexpr int64_t kChunkBytes = int64_t{1} << 20;

  // `stream` stays valid until OnDone; board and pool outlive the call.
  FetchCall(ShardBoard* board, CopyPool* pool, Stream* stream);

  void Start(const v1::FetchShardRequest& request);
  void OnWritten(bool ok);
  void OnCancelled();
  // The stream is gone; `delivered`: it ended with OK and the client was there.
  void OnDone(bool delivered);

  void OnShard(const ShardId& id, std::shared_ptr<StagedShard> shard) override;
  void End(const absl::Status& why) override;
  std::optional<absl::Status> Stalled(absl::Time now) override;

 private:
  // Rows of tensor `index` that are still to be sent.
  struct Part {
    size_t index = 0;
    int64_t row_begin = 0, row_end = 0;
  };

  absl::Status Plan() REQUIRES(mutex_);
  // Cuts the next chunk off parts_, and has its checksum made.
  void PrepareNext() REQUIRES(mutex_);
  void OnPrepared(LeavingChunk chunk);
  // Writes what is prepared where nothing is being written.
  void Pump() REQUIRES(mutex_);
  void FinishLocked(const absl::Status& status) REQUIRES(mutex_);
  void Conclude(const absl::Status& status);

  ShardBoard* const board_;
  CopyPool* const pool_;
  Stream* const stream_;

  Mutex mutex_;
  v1::FetchShardRequest request_ GUARDED_BY(mutex_);
  std::shared_ptr<StagedShard> shard_ GUARDED_BY(mutex_);
  ShardId id_ GUARDED_BY(mutex_);
  std::vector<Part> parts_ GUARDED_BY(mutex_);  // The next is at the back.
  std::vector<std::pair<size_t, CellRect>> sent_ GUARDED_BY(mutex_);
  std::optional<LeavingChunk> prepared_ GUARDED_BY(mutex_);
  bool preparing_ GUARDED_BY(mutex_) = false;
  bool writing_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // Finish, or the last Write.
  bool done_ GUARDED_BY(mutex_) = false;      // The stream is gone.
  int64_t writing_bytes_ GUARDED_BY(mutex_) = 0;
  RateFloor rate_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DATA_PLANE_FETCH_CALL_H_
