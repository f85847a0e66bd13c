// Dropout, the LSE to base 2 and max_logit: requirements of every AttentionKernel.

#include "attention/numerics/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::InputOf;

// Every key has the same score and a separate column, so that the output shows which weights were
// kept: all of them, bit for bit, for every cut of the job.
TEST_P(KernelConformance, DropsWhatTheRuleSaysHoweverItIsCut) {
  AttentionSpec spec = Spec(DataType::kFp32, 4, 2, 1);
  spec.head_dim_v = 240;
  spec.sequences = {Rows(3, 101), Rows(33, 239), Rows(0, 2), Rows(5, 17)};
  spec.dropout = Dropout{0.3, 0xfedcba9876543210u};
  const DropoutRule rule(*spec.dropout);
  Input input = InputOf(spec);
  int64_t key = 0;
  for (const Sequence& sequence : spec.sequences) {
    for (int64_t j = 0; j < sequence.kv_len; ++j, ++key)
      for (int64_t head = 0; head < 2; ++head) input.v[(key * 2 + head) * 240 + j] = 1;
  }
  for (const bool striped : {false, true}) {
    for (const int shards : {1, 3}) {
      Cuts cuts;
      cuts.keys = {50, 61};
      cuts.q_heads = {1};
      cuts.key_shards = shards;
      cuts.striped = striped;
      KernelHarness harness(spec, input, cuts);
      ASSERT_TRUE(harness.Run(*kernel_).ok());
      const reference::Answer answer = harness.answer();
      int64_t row = 0;
      for (int64_t s = 0; s < 4; ++s) {
        const Sequence& sequence = spec.sequences[s];
        for (int64_t i = 0; i < sequence.q_len; ++i, ++row) {
          for (int32_t h = 0; h < 4; ++h) {
            const double kept = 1 / (0.7 * static_cast<double>(sequence.kv_len));
            EXPECT_NEAR(answer.lse[row * 4 + h], std::log(sequence.kv_len), 1e-5);
            for (int64_t j = 0; j < sequence.kv_len; ++j) {
              const float out = answer.out[(row * 4 + h) * 240 + j];
              ASSERT_NEAR(out, rule.Keeps(s, h, i, j) ? kept : 0, 1e-5 * kept)
                  << s << " " << i << " " << h << " " << j;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelConformance, DropoutWithEverythingElseIsWithinTheBudget) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const double rate : {0.0, 0.1, 0.75}) {
      AttentionSpec spec = Spec(dtype, 4, 2, 40);
      spec.sequences = {Rows(90, 300), Rows(40, 9)};
      spec.masks = {Causal()};
      spec.masks[0].window_left = 120;
      spec.dropout = Dropout{rate, 5};
      if (rate > 0.5) spec.modifiers.sinks.assign(4, 1.0f);
      if (rate < 0.5) spec.modifiers.soft_cap = 2;
      Cuts cuts;
      cuts.keys = {37, 100};
      cuts.key_shards = 3;
      cuts.striped = dtype == DataType::kFp32;
      ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 50), cuts)) << rate;
    }
  }
}

TEST_P(KernelConformance, ARateOf0ChangesNoBit) {
  AttentionSpec spec = Spec(DataType::kFp32, 4, 2, 40);
  spec.sequences = {Rows(90, 300)};
  const Input input = Normal(spec, 8);
  KernelHarness without(spec, input, {});
  spec.dropout = Dropout{0, 5};
  KernelHarness with(spec, input, {});
  ASSERT_TRUE(without.Run(*kernel_).ok());
  ASSERT_TRUE(with.Run(*kernel_).ok());
  EXPECT_EQ(with.answer().out, without.answer().out);
  EXPECT_EQ(with.answer().lse, without.answer().lse);
}

TEST_P(KernelConformance, MaxLogitAndTheLseToBase2) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    for (const bool modified : {false, true}) {
      AttentionSpec spec = Spec(dtype, 4, 2, 40);
      spec.sequences = {Rows(90, 60), Rows(40, 300), Rows(2, 0)};  // The first 30 rows see nothing.
      spec.masks = {Causal()};
      spec.outputs.max_logit = true;
      spec.outputs.lse_base = LseBase::k2;
      if (modified) {
        spec.modifiers.soft_cap = 1.5;
        spec.modifiers.alibi_slopes.assign(4, 0.01f);
        spec.modifiers.sinks.assign(4, 3.0f);  // Above every score.
        spec.dropout = Dropout{0.5, 1};
      }
      Cuts cuts;
      cuts.keys = {37, 100};
      cuts.q_heads = {3};
      ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 50), cuts));
      KernelHarness harness(spec, Normal(spec, 50), cuts);
      ASSERT_TRUE(harness.Run(*kernel_).ok());
      const reference::Answer answer = harness.answer();
      ASSERT_EQ(answer.max_logit.size(), 132u * 4);
      for (size_t cell = 0; cell < 132 * 4; ++cell) {
        const bool empty = cell / 4 < 30 || cell / 4 >= 130;
        EXPECT_EQ(std::isinf(answer.max_logit[cell]), empty) << cell;
        EXPECT_TRUE(!modified || answer.max_logit[cell] <= 1.5f) << cell;
      }
    }
  }
}

// Rows that see a larger score in most blocks, once by far.
TEST_P(KernelConformance, ScoresThatGrowBlockByBlock) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const bool max_logit : {false, true}) {
      AttentionSpec spec = Spec(dtype, 2, 1, 16);
      spec.sequences = {Rows(40, 3000)};
      spec.outputs.max_logit = max_logit;
      Input input = Normal(spec, 51);
      for (int64_t row = 0; row < 40 * 2; ++row) input.q[row * 16] = 4;  // Times the scale: 1.
      for (int64_t key = 0; key < 3000; ++key) {
        const auto half_block = static_cast<double>(key / 128);
        input.k[key * 16] = half_block / 2 + (half_block > 12 ? 30 : 0);
      }
      Cuts cuts;
      cuts.keys = {1000, 1600};
      ASSERT_TRUE(WithinBudget(*kernel_, spec, input, cuts)) << max_logit;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace annulus
