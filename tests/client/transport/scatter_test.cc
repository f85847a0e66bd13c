#include "client/transport/scatter.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "client/transport/tensor_memory.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

using Bytes = std::vector<std::byte>;
using Partition = std::vector<RowMap>;

RowMap Block(int64_t begin, int64_t size) {
  return size == 0 ? RowMap() : RowMap({{begin, size, size, 1}});
}

Partition Contiguous(int64_t rows, int world) {
  Partition maps;
  for (int rank = 0; rank < world; ++rank) {
    const int64_t begin = rows * rank / world;
    maps.push_back(Block(begin, rows * (rank + 1) / world - begin));
  }
  return maps;
}

Partition Zigzag(int64_t rows, int world) {
  Partition maps;
  const auto cut = [&](int i) { return rows * i / (2 * world); };
  for (int rank = 0; rank < world; ++rank) {
    std::vector<RowRange> ranges;
    for (int i : {rank, 2 * world - 1 - rank}) {
      const int64_t size = cut(i + 1) - cut(i);
      if (size > 0) ranges.push_back({cut(i), size, size, 1});
    }
    maps.push_back(RowMap(ranges));
  }
  return maps;
}

Partition Striped(int64_t rows, int world, int64_t stripe) {
  Partition maps;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<RowRange> ranges;
    for (int64_t begin = rank * stripe; begin < rows; begin += world * stripe) {
      const int64_t size = std::min(stripe, rows - begin);
      ranges.push_back({begin, size, size, 1});
    }
    maps.push_back(RowMap(ranges));
  }
  return maps;
}

constexpr int kLayouts = 4;
Partition MakePartition(int layout, int64_t rows, int world) {
  if (layout == 0) return Contiguous(rows, world);
  if (layout == 1) return Zigzag(rows, world);
  return Striped(rows, world, layout == 2 ? 1 : 3);
}

TensorInfo Tensor(int32_t heads, int32_t dim) {
  return {TensorId::kQ, RowSpace::kQuery, Direction::kInput, heads, dim, DataType::kFp16};
}

Bytes RandomBytes(size_t size) {
  Bytes bytes(size);
  std::mt19937 random(7);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TensorChunk Rectangle(const TensorInfo& tensor, const Bytes& memory, Interval rows,
                      Interval heads) {
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  TensorChunk chunk;
  chunk.tensor = tensor.id;
  chunk.row_begin = rows.begin;
  chunk.row_count = rows.length();
  chunk.head_begin = static_cast<int32_t>(heads.begin);
  chunk.head_count = static_cast<int32_t>(heads.length());
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const std::byte* row = memory.data() + i * tensor.row_bytes();
    chunk.data.Append(Payload::Copied(row + heads.begin * head_bytes, heads.length() * head_bytes));
  }
  chunk.crc32c = chunk.data.Crc32c();
  return chunk;
}

// Rectangles that cover [rows, heads] exactly once, in random order.
std::vector<TensorChunk> RandomChunks(const TensorInfo& tensor, int64_t rows, const Bytes& memory,
                                      std::mt19937& random) {
  std::vector<TensorChunk> chunks;
  for (int64_t row = 0; row < rows;) {
    const Interval some{row, std::min<int64_t>(rows, row + 1 + random() % 9)};
    const int64_t cut = random() % (tensor.heads + 1);
    if (cut > 0) chunks.push_back(Rectangle(tensor, memory, some, {0, cut}));
    if (cut < tensor.heads) chunks.push_back(Rectangle(tensor, memory, some, {cut, tensor.heads}));
    row = some.end;
  }
  std::shuffle(chunks.begin(), chunks.end(), random);
  return chunks;
}

// Scatters chunks of the caller's rows into the shards' memory.
std::vector<Bytes> ScatterAll(const TensorInfo& tensor, const Partition& maps,
                              const std::vector<TensorChunk>& chunks) {
  std::vector<Bytes> shards;
  for (const RowMap& map : maps) {
    Bytes shard(map.rows() * tensor.row_bytes());
    for (const TensorChunk& chunk : chunks) {
      const TensorChunk part = ScatterChunk(tensor, map, chunk);
      if (part.row_count > 0) PlaceRows(tensor, Block(0, map.rows()), part, shard.data());
    }
    shards.push_back(std::move(shard));
  }
  return shards;
}

TEST(ScatterTest, GatherOfScatterIsTheIdentity) {
  const uint32_t seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TensorInfo tensor = Tensor(3, 5);
  for (int64_t rows : {0, 1, 2, 7, 64, 509}) {
    const Bytes memory = RandomBytes(rows * tensor.row_bytes());
    for (int world : {1, 2, 3, 4, 7}) {
      for (int layout = 0; layout < kLayouts; ++layout) {
        SCOPED_TRACE(testing::Message()
                     << rows << " rows, world " << world << ", layout " << layout);
        const Partition maps = MakePartition(layout, rows, world);
        const std::vector<Bytes> shards =
            ScatterAll(tensor, maps, RandomChunks(tensor, rows, memory, random));
        Bytes placed(memory.size()), gathered(memory.size());
        for (int rank = 0; rank < world; ++rank) {
          const int64_t own = maps[rank].rows();
          for (const TensorChunk& chunk : RandomChunks(tensor, own, shards[rank], random)) {
            PlaceRows(tensor, maps[rank], chunk, placed.data());
            for (const TensorChunk& part : GatherChunk(maps[rank], chunk)) {
              ASSERT_TRUE(VerifyCrc(part).ok());
              PlaceRows(tensor, Block(0, rows), part, gathered.data());
            }
          }
        }
        ASSERT_EQ(placed, memory);
        ASSERT_EQ(gathered, memory);
      }
    }
  }
}

AttentionSpec SpecOf(int64_t rows) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp16;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = rows;
  spec.sequences[0].kv_len = rows / 2;
  return spec;
}

// Reads a source to its end and stores its chunks.
void Drain(ChunkSource* source, const std::vector<TensorInfo>& table, const ShardRows& rows,
           std::map<TensorId, Bytes>* back) {
  for (ChunkSource::State state = ChunkSource::State::kChunks;
       state == ChunkSource::State::kChunks;) {
    ChunkBatch batch;
    state = source->Next(&batch);
    ASSERT_LE(batch.bytes, kMaxChunkBytes);
    ASSERT_LE(batch.chunks.size(), kMaxMessageChunks);
    for (TensorChunk& chunk : batch.chunks) {
      const TensorInfo& tensor = *FindTensor(table, chunk.tensor);
      ASSERT_TRUE(CheckChunk(tensor, rows.of(tensor).rows(), &chunk).ok());
      ASSERT_TRUE(VerifyCrc(chunk).ok());
      PlaceRows(tensor, rows.of(tensor), chunk, (*back)[chunk.tensor].data());
    }
  }
}

TEST(ScatterTest, AMemorySourceSendsEveryRowInBoundedChunks) {
  for (int64_t rows : {0, 1, 100, 9000}) {
    const AttentionSpec spec = SpecOf(rows);
    const std::vector<TensorInfo> table = TensorTable(spec);
    const auto memory = std::make_shared<Bytes>(RandomBytes(rows * table[0].row_bytes()));
    InputMemory inputs;
    inputs.owner = memory;
    for (const TensorInfo& tensor : table) inputs.tensors[tensor.id] = memory->data();
    for (int layout = 0; layout < kLayouts; ++layout) {
      const Partition q = MakePartition(layout, rows, 3), kv = MakePartition(layout, rows / 2, 3);
      std::map<TensorId, Bytes> back;
      for (int i : {0, 1, 2})
        back[table[i].id].resize((i ? rows / 2 : rows) * table[i].row_bytes());
      for (int rank = 0; rank < 3; ++rank) {
        MemorySource source(table, {q[rank], kv[rank]}, inputs);
        Drain(&source, table, {q[rank], kv[rank]}, &back);
      }
      for (const auto& [id, bytes] : back) {
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), memory->begin()))
            << TensorName(id) << " of " << rows << " rows, layout " << layout;
      }
    }
  }
}

TEST(ScatterTest, LongRunsAreNotCopied) {
  const TensorInfo tensor = Tensor(8, 128);
  const auto memory = std::make_shared<Bytes>(512 * tensor.row_bytes());
  const Payload payload = CollectRows(tensor, Block(256, 256), {0, 256}, memory->data(), memory);
  ASSERT_EQ(payload.slices().size(), 1u);
  EXPECT_EQ(static_cast<const void*>(payload.slices()[0].begin()),
            memory->data() + 256 * tensor.row_bytes());
}

v1::Plan PlanOf(const Partition& q, const Partition& kv) {
  v1::Plan plan;
  for (size_t rank = 0; rank < q.size(); ++rank) {
    v1::ShardPlan* shard = plan.add_shards();
    shard->set_rank(static_cast<int32_t>(rank));
    RowMapToProto(q[rank], shard->mutable_q_rows());
    RowMapToProto(kv[rank], shard->mutable_kv_rows());
  }
  return plan;
}

TEST(ScatterTest, PlansThatReachPastTheJobAreRefused) {
  const AttentionSpec spec = SpecOf(100);
  EXPECT_TRUE(RowsOfPlan(PlanOf(Zigzag(100, 3), Zigzag(50, 3)), spec).ok());
  const v1::Plan longer = PlanOf(Zigzag(101, 3), Zigzag(50, 3));
  EXPECT_EQ(DetailOf(RowsOfPlan(longer, spec).status()).reason, "INVALID_PLAN");
  const v1::Plan shifted = PlanOf({Block(1, 100)}, {Block(0, 50)});
  EXPECT_EQ(DetailOf(RowsOfPlan(shifted, spec).status()).reason, "INVALID_PLAN");
  v1::Plan ranks = PlanOf(Zigzag(100, 3), Zigzag(50, 3));
  ranks.mutable_shards(1)->set_rank(2);
  EXPECT_EQ(DetailOf(RowsOfPlan(ranks, spec).status()).reason, "INVALID_PLAN");
}

}  // namespace
}  // namespace annulus
