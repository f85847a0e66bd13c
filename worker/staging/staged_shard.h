#ifndef ANNULUS_WORKER_STAGING_STAGED_SHARD_H_
#define ANNULUS_WORKER_STAGING_STAGED_SHARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attention/spec/received_ranges.h"
#include "attention/spec/tensor_table.h"
#include "base/mutex.h"
#include "proto/wire/chunk_header.h"
#include "worker/staging/page_pool.h"

namespace annulus {

// What a shard's memory holds: TensorTable(spec), and the shard's own rows.
struct ShardShape {
  std::vector<TensorInfo> tensors;
  int64_t q_rows = 0;
  int64_t kv_rows = 0;

  int64_t rows(const TensorInfo& tensor) const {
    return tensor.rows == RowSpace::kQuery ? q_rows : kv_rows;
  }
  // Bytes of all tensors of one direction, without padding.
  int64_t bytes(Direction direction) const;
  // Of all tensors that have memory of the shard's own: all but the lent ones.
  int64_t own_bytes() const;
};

// A rectangle that arrives: rows × heads of one input, in the shard's own rows.
struct ArrivingChunk : ChunkHeader {
  // The bytes, row-major, in pieces.
  absl::Span<const absl::string_view> pieces;
};

// What one PutShard call has brought so far: a cell twice in one call is an error. One thread at a
// time.
struct UploadCall {
  UploadCall() = default;
  UploadCall(const UploadCall&) = delete;
  UploadCall& operator=(const UploadCall&) = delete;
  ~UploadCall();

  std::vector<ReceivedRanges> seen;  // By tensor; made at first use.
  int64_t bytes = 0;      // Written, or found to be the same; all inputs: expected_bytes().
  int64_t fragments = 0;  // Of `seen`.
  std::shared_ptr<std::atomic<int64_t>> of_calls;  // The same of all calls at the shard.
};

struct MissingPiece {
  TensorId tensor = TensorId::kUnspecified;
  Interval rows;
};

// Host memory of one shard's tensors, inputs and outputs, each planar ([rows, heads, dim], the
// shard's own rows, which increase with the job's rows), and what of the inputs has arrived. What
// is lent lies in another shard, which stays as long as this one. The memory's bytes return to the
// budget when the last reference goes. Thread-safe; the tensors' bytes
// are written by Write alone until complete(), and by the executor after it.
class StagedShard {
 public:
  // What calls at the shard have brought, all together, takes at most so many fragments for each
  // input: those of two calls, since one whose connection has died may be there for a while.
  static constexpr size_t kMaxFragmentsOfInput = 2 * ReceivedRanges::kMaxFragments;

  // Takes the bytes of all inputs and outputs from the pool's budget. RESOURCE_EXHAUSTED where it
  // or the machine has no room. `on_freed` runs after the memory has been given back, on whatever
  // thread held the last reference; it may be empty. `lender` has every tensor of the shape that is
  // lent, its inputs complete, else INTERNAL / INVALID_PLAN; null where none is lent. Its outputs
  // are there, too: that is for the caller to know.
  static absl::StatusOr<std::shared_ptr<StagedShard>> Create(
      PagePool* pool, ShardShape shape, std::function<void()> on_freed,
      std::shared_ptr<const StagedShard> lender = nullptr);
  ~StagedShard();

  // Checks a chunk, its CRC included, and copies it into place. Nothing of a refused chunk is kept.
  // Cells that an earlier call brought must come with the same bytes, and are left as they are.
  // INVALID_ARGUMENT: UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH, CHUNK_OVERLAP,
  // TOO_MANY_FRAGMENTS, LSE_TOO_COARSE (attention/numerics/wide_lse.h: an LSE without its rest);
  // DATA_LOSS: CHECKSUM_MISMATCH.
  absl::Status Write(UploadCall* call, const ArrivingChunk& chunk);

  // Every input cell has arrived. Once true, always true.
  bool complete() const;
  int64_t received_bytes() const;
  int64_t expected_bytes() const { return expected_bytes_; }
  int64_t output_bytes() const { return output_bytes_; }
  // At most `limit` runs of rows, all tensors together, each with all its heads.
  std::vector<MissingPiece> Missing(size_t limit) const;

  const ShardShape& shape() const { return shape_; }
  // The first byte of tensor `index` of shape().tensors; a valid pointer even where the tensor is
  // empty.
  std::byte* tensor_data(size_t index) const { return data_[index]; }

 private:
  struct Target;  // A chunk resolved against the shape.

  std::byte* DataOf(TensorId id) const;  // Of a tensor of the shape.
  StagedShard(ShardShape shape, std::shared_ptr<std::byte> memory, std::function<void()> on_freed,
              std::shared_ptr<const StagedShard> lender);
  absl::StatusOr<Target> Resolve(const ArrivingChunk& chunk) const;
  // In what the call has brought.
  absl::Status Note(UploadCall* call, const Target& target, const ArrivingChunk& chunk) const;
  // Refuses an LSE of which too many digits are lost, in a shard that has no rests.
  absl::Status CheckLse(const Target& target, const ArrivingChunk& chunk) const;
  absl::Status Place(const Target& target, const ArrivingChunk& chunk) REQUIRES(mutex_);

  const ShardShape shape_;
  int64_t expected_bytes_ = 0;
  int64_t output_bytes_ = 0;
  std::function<void()> on_freed_;
  std::shared_ptr<const StagedShard> lender_;
  std::shared_ptr<std::byte> memory_;
  std::vector<std::byte*> data_;

  // Of UploadCall::seen, which may live longer.
  const std::shared_ptr<std::atomic<int64_t>> fragments_ =
      std::make_shared<std::atomic<int64_t>>(0);
  mutable Mutex mutex_;
  std::vector<ReceivedRanges> arrived_ GUARDED_BY(mutex_);  // By tensor; outputs' stay empty.
  int64_t received_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_STAGED_SHARD_H_
