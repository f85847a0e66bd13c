#include "client/transport/tensor_strides.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "attention/sharding/row_map.h"
#include "base/error.h"
#include "client/transport/tensor_memory.h"
#include "gtest/gtest.h"
#include "tests/seed.h"

namespace annulus {
namespace {

TensorInfo Info(TensorId id, int32_t heads, int32_t dim, DataType dtype = DataType::kFp32) {
  TensorInfo tensor;
  tensor.id = id;
  tensor.heads = heads;
  tensor.dim = dim;
  tensor.dtype = dtype;
  return tensor;
}

// A tensor in a random order of its dimensions, with random gaps.
struct Case {
  TensorInfo tensor;
  int64_t rows = 0;
  TensorStrides strides;
  int64_t bytes = 0;

  // By the formula of the header.
  int64_t PlaceOf(int64_t row, int64_t head, int64_t element) const {
    const int64_t tokens = strides.tokens == 0 ? rows : strides.tokens;
    return strides.sequence * (row / tokens) + strides.token * (row % tokens) +
           strides.head * head + strides.element * element;
  }
};

Case RandomCase(std::mt19937_64& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  Case made;
  const int64_t sequences = 1 + below(3), tokens = 1 + below(40);
  made.tensor =
      Info(TensorId::kQ, static_cast<int32_t>(1 + below(5)), static_cast<int32_t>(1 + below(9)),
           below(2) ? DataType::kFp32 : DataType::kBf16);
  made.rows = sequences * tokens;
  made.strides.tokens = sequences == 1 && below(2) ? 0 : tokens;
  const int64_t element = made.tensor.row_bytes() / (made.tensor.heads * made.tensor.dim);
  std::array<std::pair<int64_t*, int64_t>, 4> dims = {{{&made.strides.sequence, sequences},
                                                       {&made.strides.token, tokens},
                                                       {&made.strides.head, made.tensor.heads},
                                                       {&made.strides.element, made.tensor.dim}}};
  std::shuffle(dims.begin(), dims.end(), random);
  int64_t next = element;
  made.bytes = element;
  for (const auto& [stride, extent] : dims) {
    *stride = next + below(2) * element;
    made.bytes += *stride * (extent - 1);
    next = *stride * extent;
  }
  return made;
}

std::vector<std::byte> RandomBytes(int64_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(TensorStridesTest, PartsOfRandomTensors) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 300; ++round) {
    const Case made = RandomCase(random);
    const TensorInfo& tensor = made.tensor;
    const absl::StatusOr<int64_t> bytes =
        StridedBytes(tensor, made.rows, made.strides, /*output=*/true);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_EQ(*bytes, made.bytes);
    const std::vector<std::byte> whole = RandomBytes(made.bytes, random);
    TensorPart part;
    part.row = static_cast<int64_t>(random() % made.rows);
    part.rows = 1 + static_cast<int64_t>(random() % (made.rows - part.row));
    part.head = static_cast<int32_t>(random() % tensor.heads);
    part.heads = 1 + static_cast<int32_t>(random() % (tensor.heads - part.head));
    const int64_t element = tensor.row_bytes() / (tensor.heads * tensor.dim);
    std::vector<std::byte> packed(part.rows * part.heads * tensor.dim * element);
    PackPart(tensor, made.strides, part, whole.data(), packed.data());
    std::vector<std::byte> wanted = whole;
    const std::vector<std::byte> other = RandomBytes(packed.size(), random);
    std::vector<std::byte> placed = whole;
    UnpackPart(tensor, made.strides, part, other.data(), placed.data());
    const std::byte* next = packed.data();
    const std::byte* next_other = other.data();
    for (int64_t row = part.row; row < part.row + part.rows; ++row) {
      for (int32_t head = part.head; head < part.head + part.heads; ++head) {
        for (int32_t d = 0; d < tensor.dim; ++d, next += element, next_other += element) {
          const int64_t place = made.PlaceOf(row, head, d);
          ASSERT_EQ(std::memcmp(next, whole.data() + place, element), 0);
          std::memcpy(wanted.data() + place, next_other, element);
        }
      }
    }
    ASSERT_EQ(placed, wanted) << "a byte beside the part was written";
  }
}

// A shard of every second pair of rows, sent and placed, as chunks.
TEST(TensorStridesTest, MemorySourceAndPlaceChunks) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    const Case made = RandomCase(random);
    TensorInfo input = made.tensor;
    input.direction = Direction::kInput;
    ShardRows rows;
    rows.q = RowMap({RowRange{0, made.rows, made.rows, 1}});
    if (made.rows >= 4) rows.q = RowMap({RowRange{0, 2, 4, made.rows / 4}});
    const auto memory = std::make_shared<std::vector<std::byte>>(RandomBytes(made.bytes, random));
    InputMemory inputs;
    inputs.owner = memory;
    inputs.tensors[input.id] = memory->data();
    inputs.strides[input.id] = made.strides;
    MemorySource source({input}, rows, inputs);
    ChunkBatch batch;
    ASSERT_EQ(source.Next(&batch), ChunkSource::State::kLast);
    std::vector<std::byte> target(made.bytes);
    OutputMemory outputs;
    outputs.tensors[input.id] = target.data();
    outputs.strides[input.id] = made.strides;
    PlaceChunks({input}, rows, batch.chunks, outputs);
    const int64_t element = input.row_bytes() / (input.heads * input.dim);
    std::vector<std::byte> wanted(made.bytes);
    for (int64_t local = 0; local < rows.q.rows(); ++local) {
      for (int32_t head = 0; head < input.heads; ++head) {
        for (int32_t d = 0; d < input.dim; ++d) {
          const int64_t place = made.PlaceOf(rows.q.Global(local), head, d);
          std::memcpy(wanted.data() + place, memory->data() + place, element);
        }
      }
    }
    ASSERT_EQ(target, wanted);
  }
}

// Heads of 1 MiB and more go one by one.
TEST(TensorStridesTest, ALongRowIsSplitByHeads) {
  TensorInfo tensor = Info(TensorId::kBias, 3, 300000);
  tensor.direction = Direction::kInput;
  std::mt19937_64 random(TestSeed());
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  const auto memory =
      std::make_shared<std::vector<std::byte>>(RandomBytes(2 * tensor.row_bytes(), random));
  InputMemory inputs;
  inputs.owner = memory;
  inputs.tensors[tensor.id] = memory->data();
  inputs.strides[tensor.id] = {0, 0, head_bytes, 2 * head_bytes, 4};  // [heads, tokens, dim].
  ShardRows rows;
  rows.q = RowMap({RowRange{0, 2, 2, 1}});
  MemorySource source({tensor}, rows, inputs);
  int chunks = 0;
  for (auto state = ChunkSource::State::kChunks; state == ChunkSource::State::kChunks;) {
    ChunkBatch batch;
    state = source.Next(&batch);
    for (const TensorChunk& chunk : batch.chunks) {
      std::vector<std::byte> bytes(chunk.data.size());
      chunk.data.CopyTo(0, bytes.size(), bytes.data());
      ASSERT_EQ(chunk.row_count, 1);
      const std::byte* at = memory->data() + head_bytes * (chunk.row_begin + 2 * chunk.head_begin);
      ASSERT_EQ(std::memcmp(bytes.data(), at, head_bytes), 0);
      ++chunks;
    }
  }
  EXPECT_EQ(chunks, 6);
}

TEST(TensorStridesTest, WhatIsRefused) {
  const TensorInfo tensor = Info(TensorId::kK, 2, 4);
  const auto reason = [&](TensorStrides strides, bool output) {
    return DetailOf(StridedBytes(tensor, 6, strides, output).status()).reason;
  };
  EXPECT_EQ(reason({3, 96, 32, 16, 4}, true), "");
  EXPECT_EQ(reason({3, 0, 32, 16, 4}, false), "") << "a sequence for all";
  EXPECT_EQ(reason({3, 0, 32, 16, 4}, true), "SHAPE_MISMATCH");
  EXPECT_EQ(reason({3, 96, 32, 12, 4}, true), "SHAPE_MISMATCH") << "heads overlap";
  EXPECT_EQ(reason({3, 96, 32, 12, 4}, false), "");
  EXPECT_EQ(reason({4, 96, 32, 16, 4}, false), "SHAPE_MISMATCH") << "4 do not divide 6";
  EXPECT_EQ(reason({-1, 96, 32, 16, 4}, false), "SHAPE_MISMATCH");
  EXPECT_EQ(reason({3, 96, -32, 16, 4}, false), "SHAPE_MISMATCH");
  EXPECT_EQ(reason({3, INT64_MAX, 32, 16, 4}, false), "DIM_OVERFLOW");
  EXPECT_EQ(reason({0, INT64_MAX, 32, 16, 4}, true), "") << "one sequence has no stride";
  EXPECT_EQ(DetailOf(StridedBytes(tensor, 6, {4, 0, 0, 0, 4}, false).status()).fields[0].field,
            "k.strides");
  EXPECT_EQ(*StridedBytes(tensor, 0, {0, 1, 1, 1, 1}, true), 0);
}

}  // namespace
}  // namespace annulus
