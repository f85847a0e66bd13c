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

// Cuts a caller's tensor into the rows of a plan's ranks, and puts it together again, in this
// process: for who feeds or keeps shards by himself, and for what goes with a row (positions). No
// service is asked; the plan is one that PlanJob, JobEvent.placed or Attend has told.

// Which rows each rank of a plan has. Immutable.
class PlanRows {
 public:
  // INVALID_ARGUMENT / INVALID_PLAN with the field at fault, unless ranks are 0, 1, … and every
  // query row and every key row from 0 on is exactly one rank's.
  static absl::StatusOr<PlanRows> Of(const v1::Plan& plan);

  int32_t ranks() const { return static_cast<int32_t>(q_.size()); }
  // Of one rank, in the order in which its shard has them. Rank in range.
  const RowMap& Of(RowSpace space, int32_t rank) const {
    return space == RowSpace::kQuery ? q_[rank] : kv_[rank];
  }
  // Of the whole job.
  int64_t rows(RowSpace space) const { return space == RowSpace::kQuery ? q_rows_ : kv_rows_; }

 private:
  PlanRows() = default;

  std::vector<RowMap> q_, kv_;  // By rank.
  int64_t q_rows_ = 0, kv_rows_ = 0;
};

// How a tensor lies in memory: row-major in `shape`, of any type.
struct TensorShape {
  RowSpace rows = RowSpace::kQuery;  // Of which rows of the job its tokens are.
  int64_t element_bytes = 0;
  std::vector<int64_t> shape;
  // The dimension of `shape` that counts tokens: 0 of [tokens, heads, dim], 1 of [heads, tokens].
  int token_dim = 0;
  // The first dimension counts sequences of equal length, whose rows follow one another in the job:
  // [batch, tokens, heads, dim], or [batch, heads, tokens]. Else the tokens are the job's rows.
  bool has_batch = false;
};

// A rank's rows of a tensor: its shape without the batch, with its rows in place of the tokens.
struct TensorShard {
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// The shape of a rank's shard. INVALID_ARGUMENT: SHAPE_MISMATCH with the field at fault
// ("tensor.shape", "tensor.token_dim", "tensor.element_bytes") where the tensor is none of the
// plan's job; INVALID_RANK ("rank").
absl::StatusOr<std::vector<int64_t>> ShardShape(const PlanRows& plan, const TensorShape& tensor,
                                                int32_t rank);

// The rows of `rank` out of the whole tensor. Errors: those of ShardShape, and
// TENSOR_BYTES_MISMATCH ("tensor.bytes").
absl::StatusOr<TensorShard> ShardTensor(const PlanRows& plan, const TensorShape& tensor,
                                        absl::Span<const std::byte> bytes, int32_t rank);

// The whole tensor out of all ranks' shards, by rank: the inverse. Errors: those of ShardShape, and
// TENSOR_BYTES_MISMATCH ("shards", or "shards[2]").
absl::StatusOr<std::vector<std::byte>> UnshardTensor(
    const PlanRows& plan, const TensorShape& tensor,
    absl::Span<const absl::Span<const std::byte>> shards);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_SHARD_TENSOR_H_
