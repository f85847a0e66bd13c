#include "worker/kernel/split_kv.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

// A few rows over many keys.
AttentionSpec Decoding(int64_t rows, int64_t keys, int32_t q_heads = 4, int32_t kv_heads = 2) {
  AttentionSpec spec = Spec(DataType::kFp32, q_heads, kv_heads, 24);
  spec.sequences = {Rows(rows, keys)};
  spec.masks = {Causal()};
  return spec;
}

// Splits at `keys`, which are in order. Needs only shapes, no tensors.
KvSplit CutOf(const AttentionSpec& spec, const std::vector<int64_t>& keys = {}) {
  const BlockLayout layout(spec);
  KernelJob job;
  job.spec = &spec;
  job.layout = &layout;
  KernelTask bound;
  bound.task.q_end = bound.out_q.block.row_end = spec.q_rows();
  bound.task.head_end = bound.out_q.block.head_end = spec.q_heads;
  bound.out_q.block.kind = BlockKind::kPartial;
  std::vector<KernelTask> tasks;
  for (size_t i = 0; i <= keys.size(); ++i) {
    bound.task.k_begin = i == 0 ? 0 : keys[i - 1];
    bound.task.k_end = i == keys.size() ? spec.kv_rows() : keys[i];
    tasks.push_back(bound);
  }
  return SplitKv(job, tasks);
}

TEST(KeyChunksTest, EveryKeyIsInOneChunkInOrder) {
  const KvSplit cut = CutOf(Decoding(3, 20000), {700, 5000, 5001, 9000});
  ASSERT_GT(cut.chunks, 3);
  int64_t next = 0;
  int32_t chunk = 0;
  for (size_t t = 0; t < cut.tasks.size(); ++t) {
    EXPECT_EQ(cut.tasks[t].task.k_begin, next);
    next = cut.tasks[t].task.k_end;
    EXPECT_TRUE(cut.chunk[t] == chunk || cut.chunk[t] == chunk + 1);
    chunk = cut.chunk[t];
  }
  EXPECT_EQ(next, 20000);
  EXPECT_EQ(chunk, cut.chunks - 1);
}

TEST(KeyChunksTest, OnlyFewRowsOverManyKeysAreCut) {
  EXPECT_GT(CutOf(Decoding(1, 8192)).chunks, 1);
  EXPECT_EQ(CutOf(Decoding(1, 4096)).chunks, 0);
  EXPECT_GT(CutOf(Decoding(kTileRows / 2, 20000)).chunks, 1);
  EXPECT_EQ(CutOf(Decoding(kTileRows / 2 + 1, 20000)).chunks, 0) << "two tiles";
  AttentionSpec spec = Decoding(1, 20000);
  spec.deterministic = true;
  EXPECT_EQ(CutOf(spec).chunks, 0);
}

TEST(KeyChunksTest, FewTilesAreAsManyAsArePackedInPassing) {
  std::vector<KernelTask> tasks(2);
  const auto few = [&](int64_t begin, int64_t middle, int64_t end) {
    tasks[0].task.q_begin = begin;
    tasks[0].task.q_end = tasks[1].task.q_begin = middle;
    tasks[1].task.q_end = end;
    return CoversFewTiles(tasks, /*group=*/2);
  };
  constexpr int64_t kRows = kTileRows / 2;
  EXPECT_TRUE(few(0, 1, 2));
  EXPECT_TRUE(few(0, kRows, kPassingTiles * kRows));
  EXPECT_FALSE(few(0, kRows, kPassingTiles * kRows + 1));
  EXPECT_TRUE(few(kRows - 1, kRows, kPassingTiles * kRows));
  EXPECT_FALSE(few(kRows - 1, kRows, kPassingTiles * kRows + 1));
  EXPECT_FALSE(few(5, 5, 5)) << "no rows";
  EXPECT_FALSE(CoversFewTiles({}, /*group=*/2));
  std::byte other;
  tasks[1].out_q.data = &other;
  EXPECT_FALSE(few(0, 1, 2)) << "rows of two buffers, whose keys would be packed for each";
}

TEST(KeyChunksTest, PartialsAreBounded) {
  AttentionSpec spec = Decoding(96, 300000, 32, 32);
  spec.head_dim = spec.head_dim_v = 4;
  const KvSplit narrow = CutOf(spec);
  spec.head_dim_v = 64;
  const KvSplit wide = CutOf(spec);
  EXPECT_GT(narrow.chunks, wide.chunks);
  EXPECT_LE(wide.chunks * BlockLayout(spec).BlockBytes(wide.partial), int64_t{16} << 20);
}

class KeyChunksKernelTest : public testing::TestWithParam<std::string> {};

TEST_P(KeyChunksKernelTest, ThreadsDoNotChangeABitAndTheBudgetHolds) {
  const std::unique_ptr<AttentionKernel> one = MakeKernel(GetParam(), 1);
  if (one == nullptr) GTEST_SKIP() << "this CPU lacks " << GetParam();
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    AttentionSpec spec = Decoding(2, 9001);
    spec.dtype = dtype;
    spec.masks[0].window_left = 8700;
    spec.modifiers.sinks = {1, 0.5f, 2, -1};
    const reference::Input input = Normal(spec, 43);
    ASSERT_TRUE(WithinBudget(*one, spec, input, {}));
    const auto state = [&](int threads) {
      KernelHarness harness(spec, input, {});
      EXPECT_TRUE(harness.Run(*MakeKernel(GetParam(), threads)).ok());
      return harness.state();
    };
    const std::vector<std::byte> expected = state(1);
    EXPECT_EQ(state(2), expected);
    EXPECT_EQ(state(5), expected);
  }
}

// Without a split, rows fold their keys in one order: another set of tasks gives the same bits.
TEST_P(KeyChunksKernelTest, DeterministicJobsFoldAllKeys) {
  const std::unique_ptr<AttentionKernel> kernel = MakeKernel(GetParam(), 2);
  if (kernel == nullptr) GTEST_SKIP() << "this CPU lacks " << GetParam();
  AttentionSpec spec = Decoding(2, 9001);
  const reference::Input input = Normal(spec, 47);
  Cuts cuts;
  cuts.keys = {18 * kKeyBlock, 20 * kKeyBlock};
  cuts.call_per_task = true;
  const auto output = [&](const Cuts& how) {
    KernelHarness harness(spec, input, how);
    EXPECT_TRUE(harness.Run(*kernel).ok());
    return harness.answer().out;
  };
  EXPECT_NE(output({}), output(cuts));
  spec.deterministic = true;
  EXPECT_EQ(output({}), output(cuts));
}

INSTANTIATE_TEST_SUITE_P(Paths, KeyChunksKernelTest,
                         testing::Values("amx", "avx512bf16", "avx512", "avx2", "portable"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
