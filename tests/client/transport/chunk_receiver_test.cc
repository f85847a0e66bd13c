// A stream of outputs must bring every row once.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "client/transport/scatter.h"
#include "client/transport/shard_streams.h"

namespace annulus {
namespace {

constexpr int64_t kRows = 8;

// One query head of 4 fp32 elements.
AttentionSpec Spec(int64_t rows = kRows) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = rows;
  return spec;
}

class ChunkReceiverTest : public testing::Test {
 protected:
  absl::Status Receive(TensorId id, int64_t row_begin, int64_t row_count) {
    TensorChunk chunk;
    chunk.tensor = id;
    chunk.row_begin = row_begin;
    chunk.row_count = row_count;
    const std::string bytes(row_count * FindTensor(table_, id)->row_bytes(), 'x');
    chunk.data = Payload::Copied(bytes.data(), bytes.size());
    return receiver_.Receive(&chunk);
  }

  const std::vector<TensorInfo> table_ = TensorTable(Spec());
  ChunkReceiver receiver_{table_, WholeJob(Spec())};
};

TEST_F(ChunkReceiverTest, EveryRowInAnyOrderIsComplete) {
  EXPECT_TRUE(Receive(TensorId::kOut, 4, 4).ok());
  EXPECT_TRUE(Receive(TensorId::kLse, 0, kRows).ok());
  EXPECT_EQ(DetailOf(receiver_.Complete()).reason, "INCOMPLETE_OUTPUT");
  EXPECT_TRUE(Receive(TensorId::kOut, 0, 4).ok());
  EXPECT_TRUE(receiver_.Complete().ok());
}

TEST_F(ChunkReceiverTest, ARowThatComesTwiceHidesNoneThatIsMissing) {
  EXPECT_TRUE(Receive(TensorId::kLse, 0, kRows).ok());
  EXPECT_TRUE(Receive(TensorId::kOut, 0, 4).ok());
  const absl::Status again = Receive(TensorId::kOut, 0, 4);
  EXPECT_EQ(again.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(DetailOf(again).reason, "UNEXPECTED_OUTPUT");
  EXPECT_EQ(DetailOf(receiver_.Complete()).reason, "INCOMPLETE_OUTPUT");
}

TEST_F(ChunkReceiverTest, InputsAreNoOutputs) {
  EXPECT_EQ(DetailOf(Receive(TensorId::kQ, 0, 1)).reason, "UNEXPECTED_OUTPUT");
}

TEST(ChunkReceiverOfNothingTest, IsComplete) {
  const AttentionSpec spec = Spec(/*rows=*/0);
  EXPECT_TRUE(ChunkReceiver(TensorTable(spec), WholeJob(spec)).Complete().ok());
}

// The gateway sends the rows of striped shards one by one, shard after shard.
TEST(ChunkReceiverOfStripesTest, TakesMorePiecesThanAWorkerDoes) {
  constexpr int64_t kMany = 2 * (ReceivedRanges::kMaxFragments + 1);
  const AttentionSpec spec = Spec(kMany);
  ChunkReceiver receiver(TensorTable(spec), WholeJob(spec));
  const std::string bytes(4, 'x');
  for (const int64_t rank : {0, 1}) {
    for (int64_t row = rank; row < kMany; row += 2) {
      TensorChunk chunk;
      chunk.tensor = TensorId::kLse;
      chunk.row_begin = row;
      chunk.row_count = 1;
      chunk.data = Payload::Copied(bytes.data(), bytes.size());
      ASSERT_TRUE(receiver.Receive(&chunk).ok()) << row;
    }
  }
}

}  // namespace
}  // namespace annulus
