// Compares whole blocks in AMX's streaming pipeline with the same blocks step by step.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/kernel/amx_or_emulation.h"
#include "tests/worker/kernel/implementations.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

using reference::Answer;
using reference::Input;

constexpr int64_t kKeys = 1400;  // Five whole blocks and a part of one.

class AmxStreamingPipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    const TileIsa* isa = AmxOrEmulation();
    if (isa == nullptr) GTEST_SKIP() << "this CPU lacks AMX and what emulates it";
    steps_ = *isa;
    fp16_steps_ = *isa->fp16;
    steps_.attend = fp16_steps_.attend = nullptr;
    steps_.fp16 = &fp16_steps_;
    flow_isa_ = isa;
    flow_kernel_ = Make(isa);
    steps_kernel_ = Make(&steps_);
  }

  static std::unique_ptr<AttentionKernel> Make(const TileIsa* isa, int threads = 2) {
    CpuKernel::Options options;
    options.isa = isa;
    options.threads = threads;
    return *CpuKernel::Create(options);
  }

  static AttentionSpec SpecOf(int32_t dim, int64_t rows) {
    AttentionSpec spec = Spec(DataType::kBf16, 2, 2, dim);
    spec.scale = 0.125;
    spec.sequences = {Rows(rows, kKeys)};
    return spec;
  }

  // Raises the scores of the rows that `rows` selects by `score` of each key.
  static Input Raised(const AttentionSpec& spec, const std::function<bool(int64_t)>& rows,
                      const std::function<double(int64_t)>& score) {
    Input input = Normal(spec, 61);
    const int64_t dim = spec.head_dim;
    for (int64_t row = 0; row < spec.sequences[0].q_len * 2; ++row)
      input.q[row * dim] = rows(row / 2) ? 8 : 0;
    for (int64_t key = 0; key < kKeys * 2; ++key) input.k[key * dim] = score(key / 2);
    return input;
  }

  void ExpectSameBits(const AttentionSpec& spec, const Input& input) const {
    KernelHarness flow(spec, input, {}), steps(spec, input, {});
    ASSERT_TRUE(flow.Run(*flow_kernel_).ok());
    ASSERT_TRUE(steps.Run(*steps_kernel_).ok());
    const Answer a = flow.answer(), b = steps.answer();
    const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
      int64_t differ = 0;
      for (size_t i = 0; i < x.size(); ++i)
        differ += std::memcmp(&x[i], &y[i], sizeof(float)) != 0 &&
                  !(std::isnan(x[i]) && std::isnan(y[i]));
      return differ == 0;
    };
    EXPECT_TRUE(same(a.out, b.out));
    EXPECT_TRUE(same(a.lse, b.lse));
    EXPECT_TRUE(same(a.max_logit, b.max_logit));
  }

  // Compares sums and weights, which show more than their rounded results. Finite numbers only.
  void ExpectSameStates(const AttentionSpec& spec, const Input& input) const {
    KernelHarness flow(spec, input, {}), steps(spec, input, {});
    ASSERT_TRUE(flow.Run(*flow_kernel_).ok());
    ASSERT_TRUE(steps.Run(*steps_kernel_).ok());
    EXPECT_TRUE(flow.state() == steps.state());
  }

  // Expects the same bits, within the budget.
  void Expect(const AttentionSpec& spec, const Input& input) const {
    ExpectSameBits(spec, input);
    KernelHarness flow(spec, input, {});
    ASSERT_TRUE(flow.Run(*flow_kernel_).ok());
    EXPECT_TRUE(reference::CheckWithinBudget(input, flow.answer()));
  }

  const TileIsa* flow_isa_ = nullptr;
  TileIsa steps_ = {}, fp16_steps_ = {};
  std::unique_ptr<AttentionKernel> flow_kernel_, steps_kernel_;
};

// Whole row blocks and parts of one, more than a tile of them, both widths.
TEST_F(AmxStreamingPipelineTest, HasTheBitsOfSingleSteps) {
  for (const int32_t dim : {64, 128}) {
    for (const int64_t rows : {17, 32, 33, 100, 230}) {
      SCOPED_TRACE(testing::Message() << dim << " " << rows);
      AttentionSpec spec = SpecOf(dim, rows);
      Expect(spec, Normal(spec, 7));
      spec.scale = -0.125;
      Expect(spec, Normal(spec, 8));
    }
  }
}

TEST_F(AmxStreamingPipelineTest, UnderAMask) {
  for (const int32_t dim : {64, 128}) {
    AttentionSpec spec = SpecOf(dim, 1300);
    spec.masks = {Causal()};
    ExpectSameBits(spec, Normal(spec, 9));
  }
}

// A maximum grows only for its own row, also if other rows of its row block have growing maxima,
// and if few row blocks have one or most.
TEST_F(AmxStreamingPipelineTest, WhereMaximaGrow) {
  const auto at_900 = [](int64_t key) { return key == 900 ? 40.0 : 0.0; };
  const auto each_block = [](int64_t key) { return static_cast<double>(key / 128 * 8); };
  for (const int32_t dim : {64, 128}) {
    const AttentionSpec spec = SpecOf(dim, 200);
    for (const int64_t every : {1, 3, 70}) {
      SCOPED_TRACE(testing::Message() << dim << " " << every);
      const auto rows = [every](int64_t row) { return row % every == 0; };
      Expect(spec, Raised(spec, rows, at_900));
      Expect(spec, Raised(spec, rows, each_block));
    }
  }
}

// Rows with large weights, although no score is so large that their maximum must grow.
TEST_F(AmxStreamingPipelineTest, WhereManyScoresAreABitLarger) {
  const auto later = [](int64_t key) { return key < 300 ? 0.0 : 4.0; };
  for (const int32_t dim : {64, 128}) {
    const AttentionSpec spec = SpecOf(dim, 200);
    Expect(spec, Raised(
                     spec, [](int64_t row) { return row % 40 == 3; }, later));
    Expect(spec, Raised(
                     spec, [](int64_t) { return true; }, later));
  }
}

// Maxima far from 0, from the first block on or from a later one; of all rows, of some, and of one,
// for which the pipeline continues.
TEST_F(AmxStreamingPipelineTest, WhereMaximaAreFar) {
  const auto all = [](int64_t) { return 3008.0; };
  const auto later = [](int64_t key) { return key < 700 ? 0.0 : 1040.0; };
  for (const int32_t dim : {64, 128}) {
    for (const int64_t every : {1, 70, 1000}) {
      const AttentionSpec spec = SpecOf(dim, every == 1000 ? 768 : 200);
      SCOPED_TRACE(testing::Message() << dim << " " << every);
      const auto rows = [every](int64_t row) { return row % every == 0; };
      Expect(spec, Raised(spec, rows, all));
      Expect(spec, Raised(spec, rows, later));
      ExpectSameStates(spec, Raised(spec, rows, later));
    }
  }
}

TEST_F(AmxStreamingPipelineTest, WhereNumbersAreNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int32_t dim : {64, 128}) {
    for (const double number : {nan, infinity, -infinity}) {
      const AttentionSpec spec = SpecOf(dim, 100);
      Input input = Normal(spec, 11);
      input.q[(40 * 2 + 1) * dim + 5] = number;
      ExpectSameBits(spec, input);
      input.k[(700 * 2 + 1) * dim + 9] = number;
      ExpectSameBits(spec, input);
    }
  }
}

// A row's sums begin with its first visible key, whatever the thread's memory contains: in a row
// block whose rows all begin with a block; beside rows that have begun before; and in one in which
// some rows see nothing of the first block. One thread, whose first tile finds the remains.
TEST_F(AmxStreamingPipelineTest, WhateverAnEarlierCallHasLeft) {
  flow_kernel_ = Make(flow_isa_, /*threads=*/1);
  for (const DataType dtype : {DataType::kBf16, DataType::kFp16}) {
    for (const int32_t dim : {40, 128}) {
      AttentionSpec spec = SpecOf(dim, 500);
      spec.dtype = dtype;
      Input lost = Normal(spec, 12);
      std::fill(lost.v.begin(), lost.v.end(), std::numeric_limits<double>::quiet_NaN());
      ExpectSameBits(spec, lost);
      ExpectSameBits(spec, Normal(spec, 13));
      for (int64_t window = 600; window < 800; window += 40) {
        SCOPED_TRACE(testing::Message() << DataTypeName(dtype) << " " << dim << " " << window);
        AttentionSpec masked = spec;
        masked.masks = {Causal()};
        masked.masks[0].window_left = window;
        ExpectSameBits(spec, lost);
        ExpectSameBits(masked, Normal(masked, 14));
      }
    }
  }
}

// If the largest score is requested, it is exact, not one that lags behind.
TEST_F(AmxStreamingPipelineTest, TheLargestScoreIsExactWhereItIsAskedFor) {
  for (const int32_t dim : {64, 128}) {
    AttentionSpec spec = SpecOf(dim, 100);
    spec.outputs.max_logit = true;
    const Input input = Raised(
        spec, [](int64_t row) { return row % 3 == 0; },
        [](int64_t key) { return static_cast<double>(key / 256); });
    Expect(spec, input);
  }
}

}  // namespace
}  // namespace annulus
