// Requirements of every AttentionKernel for gradients.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/worker/kernel/gradient_harness.h"
#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::GradientAnswer;
using reference::Input;
using reference::MakeUpstream;
using reference::Upstream;

Upstream Upstreams(const AttentionSpec& spec, const Input& input, bool with_d_lse, uint64_t seed) {
  Upstream up = MakeUpstream(input, reference::PrecisionOf(spec.d_out_dtype()),
                             reference::PrecisionOf(spec.output_dtype()), with_d_lse, seed + 1);
  if (spec.outputs.lse_rest) GiveLseRests(input, &up);
  return up;
}

class GradientConformance : public KernelConformance {
 protected:
  testing::AssertionResult Check(const AttentionSpec& spec, const Cuts& cuts, uint64_t seed,
                                 bool with_d_lse = true) {
    const Input input = Normal(spec, seed);
    return GradientsWithinBudget(*kernel_, spec, input, Upstreams(spec, input, with_d_lse, seed),
                                 cuts);
  }
};

// A random job of moderate size, and a random way to cut it.
class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : random_(seed) {
    const DataType dtypes[] = {DataType::kFp32, DataType::kBf16, DataType::kFp16};
    spec = Spec(dtypes[Between(0, 2)], 1, 1, 1);
    spec.kv_heads = static_cast<int32_t>(Between(1, 3));
    spec.q_heads = spec.kv_heads * static_cast<int32_t>(Between(1, 4));
    spec.head_dim = static_cast<int32_t>(Odds(4) ? Between(1, 256) : Between(1, 40));
    spec.head_dim_v = static_cast<int32_t>(Odds(4) ? Between(1, 256) : Between(1, 40));
    if (Odds(4)) spec.scale = Odds(2) ? -0.125 : 0.0;
    if (Odds(4)) spec.out_dtype = DataType::kFp32;
    if (Odds(2)) spec.gradients.d_out_dtype = spec.output_dtype();
    spec.outputs.lse_rest = Odds(2);
    spec.operation = Operation::kGradients;
    if (Odds(4)) spec.modifiers.soft_cap = Odds(2) ? 0.7 : 20.0;
    if (Odds(4)) {
      for (int32_t head = 0; head < spec.q_heads; ++head)
        spec.modifiers.alibi_slopes.push_back(std::ldexp(1.0f, -1 - head));
    }
    if (Odds(4)) spec.modifiers.sinks.assign(spec.q_heads, Odds(2) ? 0.5f : -3.0f);
    if (Odds(4)) spec.dropout = Dropout{0.3, static_cast<uint64_t>(Between(0, 1 << 20))};
    for (int64_t s = Between(1, 3); s > 0; --s)
      spec.sequences.push_back(Rows(Between(0, 130), Odds(4) ? Between(0, 600) : Between(0, 150)));
    if (!Odds(3)) spec.masks.push_back(RandomMask());
    MakeCuts();
  }

  AttentionSpec spec;
  Cuts cuts;
  bool with_d_lse() { return Odds(2); }

 private:
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Odds(int one_in) { return Between(1, one_in) == 1; }

  Mask RandomMask() {
    Mask mask;
    mask.causal = !Odds(3);
    if (Odds(3)) mask.alignment = Mask::Alignment::kTopLeft;
    if (Odds(3)) mask.window_left = Between(0, 200);
    if (Odds(4)) mask.window_right = Between(0, 50);
    if (Odds(4)) mask.always_visible = Between(0, 20);
    if (Odds(6)) mask.chunk = Between(1, 64);
    if (Odds(5)) mask.prefix = Between(0, 150);
    return mask;
  }

  void MakeCuts() {
    for (int64_t n = Between(0, 2); n > 0; --n) cuts.q_rows.push_back(Between(0, 200));
    for (int64_t n = Between(0, 2); n > 0; --n)
      cuts.q_heads.push_back(static_cast<int32_t>(Between(0, spec.q_heads)));
    for (int64_t n = Between(0, 3); n > 0; --n) cuts.keys.push_back(Between(0, 600));
    std::sort(cuts.q_rows.begin(), cuts.q_rows.end());
    std::sort(cuts.q_heads.begin(), cuts.q_heads.end());
    std::sort(cuts.keys.begin(), cuts.keys.end());
    cuts.key_shards = static_cast<int>(Between(1, 3));
    cuts.striped = Odds(2);
    cuts.call_per_task = Odds(3);
  }

  std::mt19937_64 random_;
};

TEST_P(GradientConformance, RandomJobsAreWithinTheErrorBudget) {
  const uint64_t first = 20261122;
  const int cases = Sampled(GetParam() == "reference" ? 10 : 30);
  for (int i = 0; i < cases; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first + i);
    RandomCase c(first + i);
    ASSERT_TRUE(Check(c.spec, c.cuts, first + i, c.with_d_lse()));
  }
}

TEST_P(GradientConformance, EveryHeadDimensionAtTheEdgesOfPanels) {
  for (const int32_t dim : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 128, 255, 256}) {
    AttentionSpec spec = Spec(DataType::kBf16, 2, 1, dim);
    spec.head_dim_v = 257 - dim;
    spec.sequences = {Rows(13, 70)};
    spec.masks = {Causal()};
    ASSERT_TRUE(Check(spec, {}, dim));
  }
}

TEST_P(GradientConformance, LengthsAtTheEdgesOfTilesStripesAndBlocks) {
  int number = 0;
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const int64_t rows : {1, 5, 6, 7, 31, 32, 33, 65, 95, 96, 97, 383, 384, 385}) {
      for (const int64_t keys : {17, 255, 256, 257}) {
        if (RunsASample() && number++ % 5 != 0) continue;
        AttentionSpec spec = Spec(dtype, 1, 1, 16);
        spec.sequences = {Rows(rows, keys)};
        spec.masks = {Causal()};
        ASSERT_TRUE(Check(spec, {}, rows * 1000 + keys)) << DataTypeName(dtype);
      }
    }
  }
}

TEST_P(GradientConformance, OneAccumulatorAtATimeGivesTheSame) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 24);
  spec.sequences = {Rows(130, 300)};
  spec.masks = {Causal()};
  const Input input = Normal(spec, 41);
  const Upstream up = Upstreams(spec, input, true, 41);
  GradientHarness both(spec, input, up, {}), one(spec, input, up, {});
  ASSERT_TRUE(both.Run(*kernel_).ok());
  ASSERT_TRUE(one.Run(*kernel_, {}, /*one_side_at_a_time=*/true).ok());
  EXPECT_EQ(both.state(), one.state());
}

TEST_P(GradientConformance, SoftCapAndAlibiAloneAndTogether) {
  for (const int ways : {1, 2, 3}) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
      AttentionSpec spec = Spec(dtype, 4, 2, 24);
      spec.sequences = {Rows(110, 140), Rows(30, 20)};
      spec.masks = {Causal()};
      if ((ways & 1) != 0) spec.modifiers.soft_cap = 1.5;
      if ((ways & 2) != 0) spec.modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
      Cuts cuts;
      cuts.key_shards = 2;
      cuts.striped = ways == 2;
      ASSERT_TRUE(Check(spec, cuts, 50 + ways));
    }
  }
}

TEST_P(GradientConformance, DropoutAloneAndWithModifiers) {
  for (const double rate : {0.0, 0.25, 0.9}) {
    for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
      AttentionSpec spec = Spec(dtype, 4, 2, 24);
      spec.sequences = {Rows(110, 300), Rows(30, 20)};
      spec.masks = {Causal()};
      spec.dropout = Dropout{rate, 77};
      Cuts cuts;
      cuts.key_shards = 2;
      cuts.striped = dtype == DataType::kBf16;
      ASSERT_TRUE(Check(spec, cuts, 60));
      spec.modifiers.soft_cap = 1.5;
      spec.modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
      spec.modifiers.sinks = {0.5, -1, 0, 2};
      ASSERT_TRUE(Check(spec, {}, 61));
    }
  }
}

TEST_P(GradientConformance, RowsAndKeysWithoutPartnersGiveZero) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 24);
  spec.sequences = {Rows(50, 20), Rows(3, 0), Rows(0, 7)};
  spec.masks = {Causal()};  // Bottom-right: the first 30 rows see nothing.
  const Input input = Normal(spec, 11);
  GradientHarness harness(spec, input, Upstreams(spec, input, true, 11), {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  const GradientAnswer answer = harness.answer();
  for (int64_t i = 0; i < 30 * 4 * 24; ++i) ASSERT_EQ(answer.dq[i], 0.0f) << i;
  for (int64_t i = 50 * 4 * 24; i < 53 * 4 * 24; ++i) ASSERT_EQ(answer.dq[i], 0.0f) << i;
  for (int64_t i = 20 * 2 * 24; i < 27 * 2 * 24; ++i) ASSERT_EQ(answer.dk[i], 0.0f) << i;
  for (int64_t i = 20 * 2 * 24; i < 27 * 2 * 24; ++i) ASSERT_EQ(answer.dv[i], 0.0f) << i;
}

// NaN and infinity in keys that some rows do not see, or in rows that do not see some keys: the
// others get the same bits as without them.
class Leaks {
 public:
  enum class Of { kAll, kQueries, kUpstream };

  Leaks(DataType dtype, int32_t dim, AttentionKernel& kernel)
      : kernel_(kernel), dim_(dim), spec_(Spec(dtype, kHeads, 1, dim)) {
    spec_.sequences = {Rows(kRows, kRows)};
    spec_.masks = {Causal()};
    input_ = Normal(spec_, 17);
    up_ = Upstreams(spec_, input_, true, 17);
    clean_ = Run(input_, up_);
  }

  void OfKey(int64_t hidden, double poison) {
    Input bad = input_;
    for (int64_t d = 0; d < dim_; ++d) bad.k[hidden * dim_ + d] = bad.v[hidden * dim_ + d] = poison;
    const GradientAnswer answer = Run(bad, up_);
    for (int64_t i = 0; i < hidden * kHeads * dim_; ++i) ASSERT_EQ(clean_.dq[i], answer.dq[i]) << i;
  }

  // Keys after the row are not visible to it.
  void OfRow(int64_t hidden, double poison, Of of) {
    Input bad = input_;
    Upstream up = up_;
    for (int64_t at = hidden * kHeads * dim_; at < (hidden + 1) * kHeads * dim_; ++at) {
      if (of != Of::kUpstream) bad.q[at] = poison;
      if (of != Of::kQueries) up.d_out[at] = up.out[at] = poison;
    }
    if (of == Of::kAll) up.lse[hidden * kHeads] = up.d_lse[hidden * kHeads + 1] = poison;
    const GradientAnswer answer = Run(bad, up);
    for (int64_t i = (hidden + 1) * dim_; i < kRows * dim_; ++i) {
      ASSERT_EQ(clean_.dk[i], answer.dk[i]) << i;
      ASSERT_EQ(clean_.dv[i], answer.dv[i]) << i;
    }
    for (int64_t i = 0; i < kRows * kHeads * dim_; ++i) {
      if (i / (kHeads * dim_) == hidden) continue;
      ASSERT_EQ(clean_.dq[i], answer.dq[i]) << i;
    }
  }

 private:
  static constexpr int32_t kHeads = 2;
  static constexpr int64_t kRows = 300;

  GradientAnswer Run(const Input& input, const Upstream& up) {
    GradientHarness harness(spec_, input, up, {});
    EXPECT_TRUE(harness.Run(kernel_).ok());
    return harness.answer();
  }

  AttentionKernel& kernel_;
  const int64_t dim_;
  AttentionSpec spec_;
  Input input_;
  Upstream up_;
  GradientAnswer clean_;
};

TEST_P(GradientConformance, WhatIsMaskedCannotLeak) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const int32_t dim : {12, 40}) {
      Leaks leaks(dtype, dim, *kernel_);
      for (const double poison : {std::nan(""), HUGE_VAL}) {
        for (const int64_t hidden : {3, 40, 255, 256, 290}) {
          SCOPED_TRACE(testing::Message() << DataTypeName(dtype) << " " << poison << " " << hidden);
          leaks.OfKey(hidden, poison);
          for (const Leaks::Of of : {Leaks::Of::kAll, Leaks::Of::kQueries, Leaks::Of::kUpstream})
            leaks.OfRow(hidden, poison, of);
        }
      }
    }
  }
}

// Scores of ±cap have a slope of 0, which makes NaN of that one number of the row, times its keys.
TEST_P(GradientConformance, AnInfiniteNumberUnderASoftCapIsLostAlone) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    for (const int32_t dim : {16, 40, 64, 96}) {
      SCOPED_TRACE(testing::Message() << DataTypeName(dtype) << " " << dim);
      AttentionSpec spec = Spec(dtype, 1, 1, dim);
      spec.sequences = {Rows(5, 7)};
      spec.modifiers.soft_cap = 3;
      Input input = Normal(spec, 19);
      input.q[2 * dim + 3] = HUGE_VAL;
      for (int64_t key = 0; key < 7; ++key) input.k[key * dim + 3] = key % 2 == 0 ? 1 : -1;
      GradientHarness harness(spec, input, Upstreams(spec, input, true, 19), {});
      ASSERT_TRUE(harness.Run(*kernel_).ok());
      const GradientAnswer answer = harness.answer();
      for (int64_t i = 0; i < 7 * dim; ++i) {
        ASSERT_FALSE(std::isnan(answer.dv[i])) << i;
        ASSERT_TRUE(i % dim == 3 || !std::isnan(answer.dk[i])) << i;
      }
      for (int64_t i = 0; i < 5 * dim; ++i) ASSERT_FALSE(std::isnan(answer.dq[i])) << i;
    }
  }
}

TEST_P(GradientConformance, ARowWhoseLseIsMinusInfinityAddsNothing) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 8);
  spec.sequences = {Rows(20, 30)};
  const Input input = Normal(spec, 19);
  Upstream up = Upstreams(spec, input, true, 19);
  up.lse[7] = -std::numeric_limits<double>::infinity();
  ASSERT_TRUE(GradientsWithinBudget(*kernel_, spec, input, up, {}));
}

// A key's sums are those of the rows that see it, however many others come before.
TEST_P(GradientConformance, ARowThatIsNotThereChangesNoBitOfKeysThatDoNotSeeIt) {
  constexpr int64_t kRows = 150, kDim = 24, kGone = 3, kRowBytes = 2 * kDim * sizeof(float);
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 1, 1, kDim);
    spec.sequences = {Rows(kRows, kRows)};
    spec.masks = {Causal()};
    const Input input = Normal(spec, 23);
    Upstream up = Upstreams(spec, input, true, 23);
    GradientHarness all(spec, input, up, {});
    up.lse[kGone] = -std::numeric_limits<double>::infinity();
    GradientHarness but_one(spec, input, up, {});
    const auto later_keys = [&](GradientHarness& harness) {
      EXPECT_TRUE(harness.Run(*kernel_).ok());
      const std::byte* const sums = harness.Tasks()[0].out_kv.data;
      return std::vector<std::byte>(sums + (kGone + 1) * kRowBytes, sums + kRows * kRowBytes);
    };
    EXPECT_EQ(later_keys(all), later_keys(but_one)) << DataTypeName(dtype);
  }
}

TEST_P(GradientConformance, AccumulatorsThatATaskDoesNotReachKeepTheirBits) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    AttentionSpec spec = Spec(dtype, 2, 1, 8);
    spec.sequences = {Rows(40, 40)};
    spec.masks = {Causal()};
    Cuts cuts;
    cuts.keys = {25};
    const Input input = Normal(spec, 13);
    GradientHarness harness(spec, input, Upstreams(spec, input, true, 13), cuts);
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    const std::vector<KernelTask> tasks = harness.Tasks();
    ASSERT_EQ(tasks.size(), 2u);
    // Rows 0 … 24 see nothing of keys 25 …, and keys 0 … 24 are no part of the task.
    const int64_t row_bytes = 2 * 8 * 4, key_bytes = 2 * 8 * 4;
    std::byte *dq = tasks[1].out_q.data, *dkv = tasks[1].out_kv.data;
    for (int64_t i = 0; i < 25 * row_bytes / 4; ++i) {
      const float odd = i % 3 == 0 ? -0.0f : std::nanf("");
      std::memcpy(dq + 4 * i, &odd, 4);
    }
    for (int64_t i = 0; i < 25 * key_bytes / 4; ++i) {
      const float odd = i % 3 == 0 ? -0.0f : std::nanf("");
      std::memcpy(dkv + 4 * i, &odd, 4);
    }
    const std::vector<std::byte> rows(dq, dq + 25 * row_bytes), keys(dkv, dkv + 25 * key_bytes);
    ASSERT_TRUE(kernel_->Accumulate(harness.job(), {&tasks[1], 1}, {}).ok());
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), dq));
    EXPECT_TRUE(std::equal(keys.begin(), keys.end(), dkv));
  }
}

// Nothing that a job left in the memory of a kernel's threads has an effect.
TEST_P(GradientConformance, NothingIsLeftOfAnEarlierJob) {
  const uint64_t first = 20261123;
  for (int i = 0; i < Sampled(GetParam() == "reference" ? 3 : 12); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first + i);
    RandomCase c(first + i);
    const Input input = Normal(c.spec, first + i);
    Upstream lost = Upstreams(c.spec, input, true, first + i);
    std::fill(lost.d_out.begin(), lost.d_out.end(), std::nan(""));
    GradientHarness before(c.spec, input, lost, c.cuts);
    ASSERT_TRUE(before.Run(*kernel_).ok());
    ASSERT_TRUE(Check(c.spec, c.cuts, first + i));
  }
}

TEST_P(GradientConformance, StopEndsACallWithCancelled) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 16);
  spec.sequences = {Rows(200, 600)};
  const Input input = Normal(spec, 31);
  GradientHarness harness(spec, input, Upstreams(spec, input, false, 31), {});
  std::atomic<bool> stop{true};
  std::atomic<int64_t> progress{0};
  EXPECT_EQ(harness.Run(*kernel_, {&stop, &progress}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(progress.load(), 0);
}

TEST_P(GradientConformance, ProgressIsCounted) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 16);
  spec.sequences = {Rows(200, 300)};
  const Input input = Normal(spec, 37);
  GradientHarness harness(spec, input, Upstreams(spec, input, false, 37), {});
  std::atomic<bool> stop{false};
  std::atomic<int64_t> progress{0};
  EXPECT_TRUE(harness.Run(*kernel_, {&stop, &progress}).ok());
  EXPECT_GT(progress.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, GradientConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
