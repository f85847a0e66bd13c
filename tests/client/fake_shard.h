#ifndef ANNULUS_TESTS_CLIENT_FAKE_SHARD_H_
#define ANNULUS_TESTS_CLIENT_FAKE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/types.pb.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/tensor_table.h"
#include "client/transport/scatter.h"

namespace annulus {

// A fake worker's data of a job.
struct FakeShard {
  ShardRows rows;
  std::map<TensorId, std::vector<std::byte>> memory;  // Inputs.
  int64_t missing = 0;                                // Input bytes.
  bool fetched = false;
  bool lost = false;  // The attempt is lost: nothing is computed.
};

// Every world-th stripe, starting with stripe number `rank`.
RowMap Striped(int64_t rows, int rank, int world, int64_t stripe);

// Checks a chunk as a worker does, and stores it.
absl::Status StoreChunk(const v1::Chunk& chunk, const std::vector<TensorInfo>& table,
                        FakeShard* shard);

// Instead of attention, the output is q, and each number of another tensor is the job's row. Small
// chunks, last rows first; with wrong checksums if `corrupt`.
std::vector<v1::Chunk> FakeOutputs(const FakeShard& shard, const std::vector<TensorInfo>& table,
                                   bool corrupt);

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_SHARD_H_
