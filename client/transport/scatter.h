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

// ArenaPlan of rows between the caller's order and the shards' own: pure functions over a plan's
// row maps. Scatter is caller to shards, gather is back; gather of scatter is the identity in every
// layout. Because a shard's rows increase with the job's rows, the rows of one shard inside an
// interval of the job's rows are an interval of the shard's rows: a chunk gives at most one chunk
// to each rank.

// The rows of one rank.
struct ShardRows {
  RowMap q;
  RowMap kv;
  const RowMap& of(const TensorInfo& tensor) const {
    return tensor.rows == RowSpace::kQuery ? q : kv;
  }
};

// The maps of a plan, by rank. INTERNAL / INVALID_PLAN unless ranks are 0, 1, … and their rows add
// up to the job's and lie inside it, so that a wrong plan cannot reach past a caller's memory.
absl::StatusOr<std::vector<ShardRows>> RowsOfPlan(const v1::Plan& plan, const AttentionSpec& spec);

// One rank that owns every row in the caller's order: what a stream to the gateway uses.
ShardRows WholeJob(const AttentionSpec& spec);

// Rows [shard.begin, shard.end) of a shard out of a packed tensor at `base`, as the data of a
// chunk: references that keep `owner` where runs of rows are long, else a copy.
Payload CollectRows(const TensorInfo& tensor, const RowMap& rows, Interval shard,
                    const std::byte* base, const std::shared_ptr<const void>& owner);

// Writes a checked chunk of a shard to where its rows belong in a packed tensor at `base`.
void PlaceRows(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk,
               std::byte* base);

// The part of a checked chunk in the job's rows that belongs to a shard, in the shard's rows;
// row_count 0 when none does. Without a CRC.
TensorChunk ScatterChunk(const TensorInfo& tensor, const RowMap& rows, const TensorChunk& chunk);

// The tensor of a chunk of an input in the job's rows, `q_rows` and `kv_rows`; fills in its heads.
// INVALID_ARGUMENT: UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH, of "chunk.tensor" …
absl::StatusOr<const TensorInfo*> CheckInput(const std::vector<TensorInfo>& table, int64_t q_rows,
                                             int64_t kv_rows, TensorChunk* chunk);

// Checks a chunk of an input in the job's rows and cuts it by rank, with CRCs; row_count 0 for
// ranks that get nothing of it. INVALID_ARGUMENT: UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE,
// TENSOR_BYTES_MISMATCH.
absl::StatusOr<std::vector<TensorChunk>> ScatterToRanks(const AttentionSpec& spec,
                                                        const std::vector<TensorInfo>& table,
                                                        const std::vector<ShardRows>& ranks,
                                                        TensorChunk chunk);

// A checked chunk of a shard as chunks of the job's rows, one for each run. With CRCs where it has
// one.
std::vector<TensorChunk> GatherChunk(const RowMap& rows, const TensorChunk& chunk);
// The same of each.
std::vector<TensorChunk> GatherChunks(const std::vector<TensorInfo>& table, const ShardRows& rows,
                                      const std::vector<TensorChunk>& chunks);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SCATTER_H_
