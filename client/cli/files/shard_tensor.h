#ifndef ANNULUS_CLIENT_CLI_FILES_SHARD_TENSOR_H_
#define ANNULUS_CLIENT_CLI_FILES_SHARD_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "annulus/v1/types.pb.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Cuts a caller's tensor by the rows of a plan's ranks, and joins the shards again. For callers
// that send or keep shards themselves, and for data that belongs to rows (positions). Makes no
// calls; the plan comes from PlanJob, JobEvent.placed or Attend.

// The rows of each rank of a plan. Immutable.
//
//   ASSIGN_OR_RETURN(const PlanRows rows, PlanRows::Of(plan));
//   TensorShape shape;  // [tokens, heads, dim] of fp32.
//   shape.element_bytes = 4;
//   shape.shape = {tokens, heads, dim};
//   ASSIGN_OR_RETURN(TensorShard shard, ShardTensor(rows, shape, q, /*rank=*/1));
//   ASSIGN_OR_RETURN(std::vector<std::byte> whole, UnshardTensor(rows, shape, all_shards));
class PlanRows {
 public:
  // INVALID_ARGUMENT / INVALID_PLAN with the field, unless the ranks are 0, 1, … and every query
  // row and every key row from 0 on belongs to exactly one rank.
  static absl::StatusOr<PlanRows> Of(const v1::Plan& plan);

  int32_t ranks() const { return static_cast<int32_t>(q_.size()); }
  // The rows of one rank, in the order of its shard. Requires: 0 <= rank < ranks().
  const RowMap& Of(RowSpace space, int32_t rank) const {
    return space == RowSpace::kQuery ? q_[rank] : kv_[rank];
  }
  // The number of rows of the whole job.
  int64_t rows(RowSpace space) const { return space == RowSpace::kQuery ? q_rows_ : kv_rows_; }

 private:
  PlanRows() = default;

  std::vector<RowMap> q_, kv_;  // By rank.
  int64_t q_rows_ = 0, kv_rows_ = 0;
};

// A tensor in memory: row-major, of any type.
struct TensorShape {
  RowSpace rows = RowSpace::kQuery;  // The rows of the job that are its tokens.
  int64_t element_bytes = 0;
  std::vector<int64_t> shape;
  // The index of the tokens in `shape`: 0 for [tokens, heads, dim], 1 for [heads, tokens].
  int token_dim = 0;
  // True: the first dimension is a batch of sequences of equal length, one after the other in the
  // job: [batch, tokens, heads, dim], or [batch, heads, tokens]. False: the tokens are the job's
  // rows.
  bool has_batch = false;
};

// The rows of one rank. The shape has no batch, and the rank's rows in place of the tokens.
struct TensorShard {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// The shape of a rank's shard. INVALID_ARGUMENT: INVALID_RANK ("rank"); SHAPE_MISMATCH with the
// field ("tensor.element_bytes", "tensor.token_dim", "tensor.shape") if the tensor does not fit the
// plan.
absl::StatusOr<std::vector<int64_t>> ShardShape(const PlanRows& plan, const TensorShape& tensor,
                                                int32_t rank);

// Copies the rows of `rank` from the whole tensor. Errors: those of ShardShape(), then
// TENSOR_BYTES_MISMATCH ("tensor.bytes").
absl::StatusOr<TensorShard> ShardTensor(const PlanRows& plan, const TensorShape& tensor,
                                        absl::Span<const std::byte> bytes, int32_t rank);

// Copies the whole tensor from the shards of all ranks, in their order: the inverse of
// ShardTensor(). Errors: those of ShardShape(), then TENSOR_BYTES_MISMATCH ("shards", or
// "shards[2]").
absl::StatusOr<std::vector<std::byte>> UnshardTensor(
    const PlanRows& plan, const TensorShape& tensor,
    absl::Span<const absl::Span<const std::byte>> shards);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_TENSOR_H_
