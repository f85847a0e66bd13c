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

// Content of a shard's memory: TensorTable(spec), and the number of the shard's own rows.
struct ShardShape {
  std::vector<TensorInfo> tensors;
  int64_t q_rows = 0;
  int64_t kv_rows = 0;

  int64_t rows(const TensorInfo& tensor) const {
    return tensor.rows == RowSpace::kQuery ? q_rows : kv_rows;
  }
  // Bytes of all tensors of one direction, without padding.
  int64_t bytes(Direction direction) const;
  // Bytes of all tensors in the shard's own memory: all but the lent ones.
  int64_t own_bytes() const;
};

// A received rectangle: rows × heads of one input, in the shard's own rows.
struct ArrivingChunk : ChunkHeader {
  // The bytes, row-major, in pieces.
  absl::Span<const absl::string_view> pieces;
};

// The cells that one PutShard call has sent so far. The same cell twice in one call is an error.
// Not thread-safe.
struct UploadCall {
  UploadCall() = default;
  UploadCall(const UploadCall&) = delete;
  UploadCall& operator=(const UploadCall&) = delete;
  ~UploadCall();

  std::vector<ReceivedRanges> seen;  // Indexed by tensor; created at first use.
  // Bytes written or found equal. Equals expected_bytes() once all inputs are sent.
  int64_t bytes = 0;
  int64_t fragments = 0;  // The number of fragments in `seen`.
  // The sum of `fragments` over all calls on the shard.
  std::shared_ptr<std::atomic<int64_t>> of_calls;
};

struct MissingPiece {
  TensorId tensor = TensorId::kUnspecified;
  Interval rows;
};

// Host memory of one shard's tensors, and the record of received input cells. Each tensor is
// planar, [rows, heads, dim]. Rows are the shard's own, in increasing order of the job's rows. Lent
// tensors are in another shard, which lives as long as this one. The last reference returns the
// memory to the budget.
//
// Thread-safe. Only Write writes tensors until complete(); afterwards only the executor does.
class StagedShard {
 public:
  // Limit of the fragments of all calls on the shard, per input: those of two calls, because a call
  // whose connection has broken may remain for a while.
  static constexpr size_t kMaxFragmentsOfInput = 2 * ReceivedRanges::kMaxFragments;

  // Allocates all inputs and outputs from `pool`. `on_freed` (may be empty) runs after the memory
  // has been returned, on the thread that held the last reference. `lender` must have every lent
  // tensor of the shape, with complete inputs; nullptr if none is lent. The caller ensures that the
  // lender's outputs are there. INTERNAL / INVALID_PLAN: the lender lacks a tensor.
  // RESOURCE_EXHAUSTED: the budget or the machine has no room.
  static absl::StatusOr<std::shared_ptr<StagedShard>> Create(
      PagePool* pool, ShardShape shape, std::function<void()> on_freed,
      std::shared_ptr<const StagedShard> lender = nullptr);
  ~StagedShard();

  // Verifies a chunk, including its CRC, and copies it. A refused chunk has no effect. Cells that
  // an earlier call sent must have the same bytes, and stay as they are. INVALID_ARGUMENT:
  // UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH, LSE_TOO_COARSE
  // (attention/numerics/wide_lse.h: an LSE without its rest), CHUNK_OVERLAP, TOO_MANY_FRAGMENTS.
  // DATA_LOSS: CHECKSUM_MISMATCH.
  absl::Status Write(UploadCall* call, const ArrivingChunk& chunk);

  // True once all input cells have been received. Never becomes false again.
  bool complete() const;
  int64_t received_bytes() const;
  int64_t expected_bytes() const { return expected_bytes_; }
  int64_t output_bytes() const { return output_bytes_; }
  // Missing input rows as at most `limit` runs over all tensors. A run has all heads.
  std::vector<MissingPiece> Missing(size_t limit) const;

  const ShardShape& shape() const { return shape_; }
  // The first byte of tensor `index` of shape().tensors. Valid even if the tensor is empty.
  std::byte* tensor_data(size_t index) const { return data_[index]; }

 private:
  struct Target;  // A chunk resolved against the shape.

  std::byte* DataOf(TensorId id) const;  // The first byte of a tensor of the shape.
  StagedShard(ShardShape shape, std::shared_ptr<std::byte> memory, std::function<void()> on_freed,
              std::shared_ptr<const StagedShard> lender);
  absl::StatusOr<Target> Resolve(const ArrivingChunk& chunk) const;
  // Adds the chunk to the call's cells.
  absl::Status Note(UploadCall* call, const Target& target, const ArrivingChunk& chunk) const;
  // Refuses an LSE that is too large for fp32, if the shard has no lse_rest.
  absl::Status CheckLse(const Target& target, const ArrivingChunk& chunk) const;
  absl::Status Place(const Target& target, const ArrivingChunk& chunk) REQUIRES(mutex_);

  const ShardShape shape_;
  int64_t expected_bytes_ = 0;
  int64_t output_bytes_ = 0;
  std::function<void()> on_freed_;
  std::shared_ptr<const StagedShard> lender_;
  std::shared_ptr<std::byte> memory_;
  std::vector<std::byte*> data_;

  // The sum for UploadCall::of_calls. Shared, because calls may outlive the shard.
  const std::shared_ptr<std::atomic<int64_t>> fragments_ =
      std::make_shared<std::atomic<int64_t>>(0);
  mutable Mutex mutex_;
  std::vector<ReceivedRanges> arrived_ GUARDED_BY(mutex_);  // Indexed by tensor. Empty for outputs.
  int64_t received_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_STAGED_SHARD_H_
