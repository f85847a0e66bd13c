#include "client/transport/pushed_inputs.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/tensor_stream.h"

namespace annulus {
namespace {

// Parts for two ranks, with `bytes` for one of them.
std::vector<TensorChunk> PartsOf(int rank, int64_t bytes) {
  const std::vector<char> data(bytes, 'x');
  std::vector<TensorChunk> parts(2);
  parts[rank].row_count = 1;
  parts[rank].data = Payload::Copied(data.data(), data.size());
  return parts;
}

TEST(PushedInputsTest, ARankIsTakenWholeWhenNobodyWaitsForMore) {
  PushedInputs pushed;
  pushed.Add(0, 30);
  pushed.Add(1, 10);
  ASSERT_TRUE(pushed.Push(PartsOf(0, 20), nullptr).ok());
  ASSERT_TRUE(pushed.Push(PartsOf(0, 10), nullptr).ok());
  // The other rank's rows may wait for the credits that this one's hold.
  EXPECT_EQ(pushed.TakeAll(0).bytes, 0);
  ASSERT_TRUE(pushed.Push(PartsOf(1, 10), nullptr).ok());
  const ChunkBatch first = pushed.TakeAll(0);
  EXPECT_EQ(first.bytes, 30);
  EXPECT_EQ(first.chunks.size(), 2u);
  EXPECT_EQ(pushed.TakeAll(1).bytes, 10);
  EXPECT_EQ(DetailOf(pushed.Push(PartsOf(0, 1), nullptr)).reason, "CHUNK_OVERLAP");
}

// A producer that counts its buffers uses credits that are only deleters.
TEST(PushedInputsTest, ACreditIsHeldUntilItsBytesHaveLeft) {
  bool dropped = false;
  PushedInputs pushed;
  pushed.Add(0, 10);
  ASSERT_TRUE(pushed.Push(PartsOf(0, 10), Credit(nullptr, [&](void*) { dropped = true; })).ok());
  {
    const ChunkBatch taken = pushed.TakeAll(0);
    EXPECT_EQ(taken.bytes, 10);
    EXPECT_FALSE(dropped);
  }
  EXPECT_TRUE(dropped);
}

TEST(PushedInputsTest, MoreChunksThanAMessageHoldsAreNotTaken) {
  PushedInputs pushed;
  pushed.Add(0, kMaxMessageChunks + 1);
  for (size_t i = 0; i <= kMaxMessageChunks; ++i) {
    ASSERT_TRUE(pushed.Push(PartsOf(0, 1), nullptr).ok());
  }
  EXPECT_EQ(pushed.TakeAll(0).bytes, 0);
}

}  // namespace
}  // namespace annulus
