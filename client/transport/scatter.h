#ifndef ANNULUS_CLIENT_TRANSPORT_SCATTER_H_
#define ANNULUS_CLIENT_TRANSPORT_SCATTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/types.pb.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {

// Moves rows between the caller's order and the shards. Pure functions over the row maps of a plan.
// - Scatter: from the caller's rows to the shards. Gather: back. Gather after scatter is the
//   identity in every layout.
// - The rows of a shard increase with the job's rows. An interval of the job's rows is therefore an
//   interval in each shard: a chunk becomes at most one chunk for each rank.

// The rows of one rank: query rows and key/value rows.
struct ShardRows {
  RowMap q;
  RowMap kv;
  const RowMap& of(const TensorInfo& tensor) const {
    return tensor.rows == RowSpace::kQuery ? q : kv;
  }
};

// The rows of each rank of a plan, by rank. INTERNAL / INVALID_PLAN unless the ranks are 0, 1, …,
// every row lies inside the job, and the numbers of rows add up to the job's. A wrong plan can
// therefore not reach beyond the caller's memory.
absl::StatusOr<std::vector<ShardRows>> RowsOfPlan(const v1::Plan& plan, const AttentionSpec& spec);

// One rank with every row in the caller's order, for a stream to the gateway.
ShardRows WholeJob(const AttentionSpec& spec);

// Collects rows [shard.begin, shard.end) of a shard from the packed tensor at `base`, as the
// payload of a chunk. Runs of rows of 16 KiB and more on average are references that hold `owner`;
// shorter ones are copied.
Payload CollectRows(const TensorInfo& tensor, const RowMap& rows, Interval shard,
                    const std::byte* base, const std::shared_ptr<const void>& owner);

// Writes a verified chunk of a shard into the packed tensor at `base`.
void PlaceRows(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk,
               std::byte* base);

// The part of a verified chunk (in the job's rows) that belongs to a shard, in the shard's rows,
// without a CRC. row_count is 0 if the shard has none of the rows.
TensorChunk ScatterChunk(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk);

// Finds the tensor of an input chunk in the job's rows (`q_rows`, `kv_rows`). Sets head_count if it
// is 0. INVALID_ARGUMENT, in this order: UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH;
// field paths begin with "chunk.".
absl::StatusOr<const TensorInfo*> CheckInput(const std::vector<TensorInfo>& table, int64_t q_rows,
                                             int64_t kv_rows, TensorChunk* chunk);

// Checks an input chunk in the job's rows and cuts it by rank. The parts have CRCs; row_count is 0
// for ranks without rows of it. Errors: those of CheckInput().
absl::StatusOr<std::vector<TensorChunk>> ScatterToRanks(const AttentionSpec& spec,
                                                        const std::vector<TensorInfo>& table,
                                                        const std::vector<ShardRows>& ranks,
                                                        TensorChunk chunk);

// Cuts a verified chunk of a shard into chunks of the job's rows, one for each run of rows. The
// parts have CRCs if the chunk has one.
std::vector<TensorChunk> GatherChunk(const RowMap& rows, const TensorChunk& chunk);
// GatherChunk() of each chunk.
std::vector<TensorChunk> GatherChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                                      const std::vector<TensorChunk>& chunks);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SCATTER_H_
