// Few query slots over many keys, with unpacked keys.

#include "worker/kernel/cpu/row_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "tests/worker/kernel/wide_isa.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus {
namespace {

using reference::Input;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

AttentionSpec Decoding(DataType dtype, int64_t rows, int64_t keys, int32_t q_heads = 4,
                       int32_t kv_heads = 2, int32_t dim = 24) {
  AttentionSpec spec = Spec(dtype, q_heads, kv_heads, dim);
  spec.sequences = {Rows(rows, keys)};
  return spec;
}

// Table `path`, with calls of its function counted; nullptr if this CPU lacks it.
class CountingKernel {
 public:
  CountingKernel(const std::string& path, DataType dtype, int threads = 2) {
    const TileIsa* isa = path == "wide" ? &kWideIsa : nullptr;
    if (isa == nullptr && SelectIsa(path).ok()) isa = *SelectIsa(path);
    if (isa == nullptr) return;
    table_ = IsaFor(*isa, dtype);
    counted_ = table_.attend_rows;
    if (counted_ != nullptr) table_.attend_rows = Count;
    table_.fp16 = nullptr;
    table_.fp32 = table_.gradients == nullptr ? isa->fp32 : nullptr;
    table_.bf16x3 = isa->bf16x3;
    CpuKernel::Options options;
    options.isa = &table_;
    options.threads = threads;
    kernel_ = *CpuKernel::Create(options);
    calls_ = 0;
  }
  CountingKernel(const CountingKernel&) = delete;
  CountingKernel& operator=(const CountingKernel&) = delete;

  AttentionKernel* get() const { return kernel_.get(); }
  int64_t calls() const { return calls_; }

 private:
  static void Count(const UnpackedRows& rows, RowSlot* slots, int count) {
    ++calls_;
    counted_(rows, slots, count);
  }
  static inline std::atomic<int64_t> calls_{0};
  static inline AttendRowsFunction* counted_ = nullptr;
  TileIsa table_ = {};
  std::unique_ptr<CpuKernel> kernel_;
};

class RowLoopTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (CountingKernel(GetParam(), DataType::kFp32).get() == nullptr)
      GTEST_SKIP() << "this CPU lacks " << GetParam();
  }

  int64_t CallsFor(const AttentionSpec& spec) {
    const CountingKernel kernel(GetParam(), spec.dtype);
    Input input = Normal(spec, 3);
    input.offset = [](int64_t, int32_t, int64_t) { return 0.5; };
    KernelHarness harness(spec, input, {});
    EXPECT_TRUE(harness.Run(*kernel.get()).ok());
    return kernel.calls();
  }
  // Runs the job with unpacked rows.
  KernelHarness Done(const AttentionSpec& spec, const Input& input, const Cuts& cuts = {}) {
    const CountingKernel kernel(GetParam(), spec.dtype);
    KernelHarness harness(spec, input, cuts);
    EXPECT_TRUE(harness.Run(*kernel.get()).ok());
    EXPECT_GT(kernel.calls(), 0) << Describe(spec, cuts);
    return harness;
  }
  void ExpectWithinBudget(const AttentionSpec& spec, const Cuts& cuts = {}) {
    const Input input = Normal(spec, 5);
    EXPECT_TRUE(reference::CheckWithinBudget(input, Done(spec, input, cuts).answer()))
        << Describe(spec, cuts);
  }
};

constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16, DataType::kBf16};

TEST_P(RowLoopTest, TakesFewRowsOverManyKeys) {
  for (const DataType dtype : kTypes) {
    // One call for 16 keys of each of two key/value heads.
    EXPECT_EQ(CallsFor(Decoding(dtype, 1, 16000)), 2 * 1000);
    EXPECT_EQ(CallsFor(Decoding(dtype, 4, 16000)), 2 * 1000);
    EXPECT_EQ(CallsFor(Decoding(dtype, 1, 8192 - 256)), 0) << "not cut";
    EXPECT_EQ(CallsFor(Decoding(dtype, 40, 16000)), 0) << "many rows";
  }
}

TEST_P(RowLoopTest, TakesManyRowsThatSeeFewEach) {
  AttentionSpec spec = Decoding(DataType::kFp32, 1, 410, 2, 1);
  spec.sequences.assign(40, Rows(1, 410));
  EXPECT_EQ(CallsFor(spec), 40 * 410 / kUnpackedKeys);
}

TEST_P(RowLoopTest, LeavesOtherJobsToTheTiles) {
  const AttentionSpec plain = Decoding(DataType::kFp32, 1, 9000);
  AttentionSpec spec = plain;
  spec.deterministic = true;
  EXPECT_EQ(CallsFor(spec), 0);
  spec = plain;
  spec.modifiers.soft_cap = 3;
  EXPECT_EQ(CallsFor(spec), 0);
  spec = plain;
  spec.modifiers.alibi_slopes = {1, 0.5f, 0.25f, 0.125f};
  EXPECT_EQ(CallsFor(spec), 0);
  spec = plain;
  spec.modifiers.lse_offset = true;
  EXPECT_EQ(CallsFor(spec), 0);
  spec = plain;
  spec.dropout = Dropout{0.25, 7};
  EXPECT_EQ(CallsFor(spec), 0);
  spec = plain;
  spec.arithmetic = Arithmetic::kBf16x3;
  if (GetParam() == "amx") {
    EXPECT_EQ(CallsFor(spec), 0);
  }
}

TEST_P(RowLoopTest, EveryTypeAndDimensionIsWithinTheBudget) {
  for (const DataType dtype : kTypes) {
    for (const int32_t dim : {16, 63, 100, 256}) {
      AttentionSpec spec = Decoding(dtype, 1, 8200, 1, 1, dim);
      spec.head_dim_v = 257 - dim;
      ExpectWithinBudget(spec);
    }
  }
}

TEST_P(RowLoopTest, EveryNumberOfSlotsIsWithinTheBudget) {
  for (const int32_t group : {1, 2, 3, 4, 5, 7, 8, 13, 16}) {
    for (const DataType dtype : kTypes) ExpectWithinBudget(Decoding(dtype, 1, 8200, group, 1, 40));
  }
  for (const int32_t dim : {4, 66, 128}) {
    for (const DataType dtype : kTypes) ExpectWithinBudget(Decoding(dtype, 1, 8200, 8, 1, dim));
  }
}

TEST_P(RowLoopTest, MasksAreWithinTheBudget) {
  AttentionSpec spec = Decoding(DataType::kFp16, 3, 9001);
  spec.masks = {Causal()};
  ExpectWithinBudget(spec);
  spec.masks[0].window_left = 8500;
  spec.masks[0].always_visible = 5;
  ExpectWithinBudget(spec);
  spec.masks[0].ranges = {{0, 2, 3, 70, MaskRange::Kind::kFull},
                          {1, 3, 90, 8800, MaskRange::Kind::kFull}};
  ExpectWithinBudget(spec);
  spec.masks.push_back(Mask());
  spec.masks[1].query_heads = {1, 2};
  ExpectWithinBudget(spec);
  spec = Decoding(DataType::kBf16, 1, 700, 2, 1);
  spec.sequences.assign(20, Rows(1, 700));
  spec.sequences[3].kv_len = 5;
  ExpectWithinBudget(spec);
}

TEST_P(RowLoopTest, ScalesAreHonoured) {
  for (const double scale : {-0.3, 0.0, 3.0}) {
    AttentionSpec spec = Decoding(DataType::kBf16, 1, 8200);
    spec.scale = scale;
    ExpectWithinBudget(spec);
  }
}

// Buffers of several shards; then sequential calls, of which later ones continue a state.
TEST_P(RowLoopTest, CutsAreWithinTheBudget) {
  const AttentionSpec spec = Decoding(DataType::kFp32, 2, 20000);
  Cuts cuts;
  cuts.keys = {30, 400, 8500};
  ExpectWithinBudget(spec, cuts);
  cuts.key_shards = 2;
  cuts.striped = true;
  ExpectWithinBudget(spec, cuts);
  cuts = {};
  cuts.keys = {9001};
  cuts.call_per_task = true;
  ExpectWithinBudget(spec, cuts);
}

TEST_P(RowLoopTest, ThreadsAndOtherRowsDoNotChangeABit) {
  for (const DataType dtype : kTypes) {
    AttentionSpec spec = Decoding(dtype, 1, 9001, 8, 1);
    AttentionSpec more = Decoding(dtype, 1, 9001, 5, 1);
    spec.out_dtype = more.out_dtype = DataType::kFp32;  // Shows all bits.
    const Input input = Normal(spec, 7);
    Input fewer = input;
    fewer.q.resize(5 * 24);
    fewer.q_heads = 5;
    const reference::Answer a = Done(spec, input).answer();
    const CountingKernel five(GetParam(), dtype, 5);
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*five.get()).ok());
    EXPECT_EQ(harness.answer().out, a.out);
    const reference::Answer b = Done(more, fewer).answer();
    for (size_t i = 0; i < b.out.size(); ++i) ASSERT_EQ(a.out[i], b.out[i]) << i;
    for (size_t i = 0; i < b.lse.size(); ++i) ASSERT_EQ(a.lse[i], b.lse[i]) << i;
  }
}

TEST_P(RowLoopTest, WhatIsHiddenCannotLeakAndWhatIsSeenShows) {
  for (const DataType dtype : kTypes) {
    AttentionSpec spec = Decoding(dtype, 3, 9001, 2, 1);
    spec.masks = {Causal()};
    spec.masks[0].window_left = 8600;
    const Input input = Normal(spec, 11);
    const reference::Answer clean = Done(spec, input).answer();
    for (const double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      // Row 0 sees 398 … 8998, row 1 399 … 8999, row 2 400 … 9000.
      for (const int64_t key : {17, 399, 9000}) {
        Input with = input;
        for (int64_t d = 0; d < 24; ++d) with.k[key * 24 + d] = with.v[key * 24 + d] = poison;
        const reference::Answer answer = Done(spec, with).answer();
        for (int64_t row = 0; row < 3; ++row) {
          const bool sees = (key == 399 && row < 2) || (key == 9000 && row == 2);
          for (int64_t i = row * 48; i < row * 48 + 48; ++i) {
            if (!sees) {
              ASSERT_EQ(answer.out[i], clean.out[i]) << key << " " << i;
            } else if (std::isnan(poison)) {
              ASSERT_TRUE(std::isnan(answer.out[i])) << key << " " << i;
            }
          }
        }
      }
      Input with = input;
      with.v[5000 * 24 + 3] = poison;
      const reference::Answer answer = Done(spec, with).answer();
      for (size_t i = 0; i < answer.out.size(); ++i)
        ASSERT_EQ(std::isfinite(answer.out[i]), i % 24 != 3) << i;
    }
  }
}

// One of eight rows sees only a part of the keys, the others see all; also with one dimension.
TEST_P(RowLoopTest, ARowThatSeesLessChangesNoOther) {
  for (const DataType dtype : kTypes) {
    for (const int32_t dim : {1, 24}) {
      AttentionSpec spec = Decoding(dtype, 1, 9001, 8, 1, dim);
      spec.out_dtype = DataType::kFp32;
      const Input input = Normal(spec, 23);
      const reference::Answer all = Done(spec, input).answer();
      spec.masks.resize(2);
      spec.masks[1].query_heads = {3};
      spec.masks[1].window_left = 8500;  // It sees keys 500 … 9000.
      Input poisoned = input;
      const reference::Answer less = Done(spec, input).answer();
      for (int32_t d = 0; d < dim; ++d) poisoned.v[499 * dim + d] = std::nan("");
      const reference::Answer hidden = Done(spec, poisoned).answer();
      for (int32_t head = 0; head < 8; ++head) {
        for (int32_t d = head * dim; d < (head + 1) * dim; ++d) {
          if (head == 3) {
            ASSERT_EQ(hidden.out[d], less.out[d]) << d;
          } else {
            ASSERT_EQ(less.out[d], all.out[d]) << d;
            ASSERT_TRUE(std::isnan(hidden.out[d])) << d;
          }
        }
      }
      EXPECT_TRUE(reference::CheckWithinBudget(input, all));
      Input masked = Normal(spec, 23);
      EXPECT_TRUE(reference::CheckWithinBudget(masked, less));
    }
  }
}

// The last row sees nothing of the first shard, in any state.
TEST_P(RowLoopTest, ARowThatSeesNothingKeepsItsBits) {
  AttentionSpec spec = Decoding(DataType::kFp32, 2, 18000, 2, 1);
  spec.masks.resize(1);
  spec.masks[0].ranges = {{0, 1, 0, 18000, MaskRange::Kind::kFull},
                          {1, 2, 9000, 18000, MaskRange::Kind::kFull}};
  Cuts cuts;
  cuts.keys = {9000};
  KernelHarness harness(spec, Normal(spec, 13), cuts);
  const CountingKernel kernel(GetParam(), DataType::kFp32);
  ASSERT_TRUE(harness.Run(*kernel.get()).ok());
  std::vector<KernelTask> tasks = harness.Tasks();
  ASSERT_EQ(tasks.size(), 2u);
  const int64_t row_bytes = harness.job().layout->RowBytes(BlockKind::kPartial, 2);
  std::byte* const state = tasks[0].out_q.data + row_bytes;
  for (int64_t i = 0; i < row_bytes; ++i) state[i] = std::byte{0xff};
  const int64_t calls = kernel.calls();
  ASSERT_TRUE(kernel.get()->Accumulate(harness.job(), {tasks.data(), 1}, {}).ok());
  EXPECT_GT(kernel.calls(), calls);
  for (int64_t i = 0; i < row_bytes; ++i) ASSERT_EQ(state[i], std::byte{0xff}) << i;
}

// Scores of −4e38, which fp32 cannot represent: the row is lost, not "nothing seen".
TEST_P(RowLoopTest, ScoresBelowTheRangeOfFp32AreNotNothing) {
  AttentionSpec spec = Decoding(DataType::kFp32, 1, 9000, 1, 1, 1);
  spec.scale = 1;
  Input input = reference::InputOf(spec);
  input.q[0] = 2e19;
  for (double& k : input.k) k = -2e19;
  for (size_t j = 0; j < input.v.size(); ++j) input.v[j] = static_cast<double>(j + 1);
  const reference::Answer lost = Done(spec, input).answer();
  EXPECT_TRUE(std::isnan(lost.out[0]));
  EXPECT_TRUE(std::isnan(lost.lse[0]));
  input.k[7000] = 0;
  const reference::Answer found = Done(spec, input).answer();
  EXPECT_EQ(found.out[0], 7001.0f);
  EXPECT_EQ(found.lse[0], 0.0f);
  for (double& k : input.k) k = std::nan("");
  EXPECT_TRUE(std::isnan(Done(spec, input).answer().lse[0]));
}

TEST_P(RowLoopTest, InfiniteKeysCountAsWhatTheyAre) {
  for (const DataType dtype : kTypes) {
    const AttentionSpec spec = Decoding(dtype, 1, 8200, 2, 1);
    Input input = Normal(spec, 17);
    input.k[100 * 24 + 5] = kInfinity;
    input.q[5] = -1;
    input.q[24 + 5] = 1;
    const reference::Answer answer = Done(spec, input).answer();
    EXPECT_TRUE(std::isfinite(answer.lse[0]));
    EXPECT_TRUE(std::isnan(answer.lse[1]));
    EXPECT_TRUE(reference::CheckWithinBudget(input, answer));
  }
}

TEST_P(RowLoopTest, AStoppedCallIsCancelled) {
  const AttentionSpec spec = Decoding(DataType::kFp32, 1, 9000);
  const CountingKernel kernel(GetParam(), DataType::kFp32);
  KernelHarness harness(spec, Normal(spec, 19), {});
  std::atomic<bool> stop{true};
  std::atomic<int64_t> progress{0};
  EXPECT_EQ(harness.Run(*kernel.get(), {&stop, &progress}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(kernel.calls(), 0);
  stop = false;
  EXPECT_TRUE(harness.Run(*kernel.get(), {&stop, &progress}).ok());
  EXPECT_GE(progress.load(), 9000 / kKeyBlock);
}

INSTANTIATE_TEST_SUITE_P(Paths, RowLoopTest, testing::Values("amx", "avx512bf16", "avx512", "wide"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
