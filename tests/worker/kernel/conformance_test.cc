// Requirements of every AttentionKernel, for the CPU's paths and the fp64 stand-in of the tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <string>

#include "tests/worker/kernel/kernel_conformance.h"

namespace annulus {
namespace {

using reference::Input;
using reference::InputOf;

// A random job of moderate size, and a random way to cut it.
class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : random_(seed) {
    spec = Spec(Pick({DataType::kFp32, DataType::kBf16, DataType::kFp16}), 1, 1, 1);
    spec.kv_heads = static_cast<int32_t>(Between(1, 3));
    spec.q_heads = spec.kv_heads * static_cast<int32_t>(Between(1, 5));
    spec.head_dim = static_cast<int32_t>(Odds(3) ? Between(1, 256) : Between(1, 40));
    spec.head_dim_v = static_cast<int32_t>(Odds(3) ? Between(1, 256) : Between(1, 40));
    if (Odds(4)) spec.scale = Pick({-0.125, 0.0, 0.25});
    if (Odds(4)) spec.out_dtype = Pick({DataType::kFp32, DataType::kBf16});
    const int64_t sequences = Between(1, 3);
    for (int64_t s = 0; s < sequences; ++s)
      spec.sequences.push_back(Rows(Between(0, 130), Odds(3) ? Between(0, 700) : Between(0, 150)));
    if (!Odds(3)) spec.masks.push_back(RandomMask());
    if (!spec.masks.empty() && Odds(2)) {
      spec.masks.push_back(RandomMask());
      for (int32_t head = 0; head < spec.q_heads; ++head)
        if (Odds(2)) spec.masks[1].query_heads.push_back(head);
      if (spec.masks[1].query_heads.empty()) spec.masks.pop_back();
    }
    MakeCuts();
  }

  AttentionSpec spec;
  Cuts cuts;

 private:
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Odds(int one_in) { return Between(1, one_in) == 1; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Between(0, static_cast<int64_t>(values.size()) - 1)];
  }

  Mask RandomMask() {
    Mask mask;
    mask.causal = !Odds(3);
    if (Odds(3)) mask.alignment = Mask::Alignment::kTopLeft;
    if (Odds(3)) mask.window_left = Between(0, 200);
    if (Odds(4)) mask.window_right = Between(0, 50);
    if (Odds(4)) mask.always_visible = Between(0, 20);
    if (Odds(6)) mask.chunk = Between(1, 64);
    if (Odds(5)) mask.prefix = Between(0, 150);
    for (int64_t n = Odds(4) ? Between(1, 4) : 0; n > 0; --n) {
      const int64_t q = Between(0, 100), k = Between(0, 300);
      mask.ranges.push_back({q, q + Between(1, 100), k, k + Between(1, 400),
                             static_cast<MaskRange::Kind>(Between(0, 3))});
    }
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

TEST_P(KernelConformance, RandomJobsAreWithinTheErrorBudget) {
  const uint64_t first = 20261121;
  const int cases = Sampled(GetParam() == "reference" ? 20 : 40);
  for (int i = 0; i < cases; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first + i);
    const RandomCase c(first + i);
    ASSERT_TRUE(WithinBudget(*kernel_, c.spec, Normal(c.spec, first + i), c.cuts));
  }
}

// Includes the padding of output rows, which must not be written.
TEST_P(KernelConformance, RowsThatBeginAndEndInTasksHaveTheSameBits) {
  if (!kernel_->ends_rows()) GTEST_SKIP() << GetParam() << " does not end rows";
  const uint64_t first = 20261123;
  int64_t ended = 0;
  for (int i = 0; i < Sampled(40); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first + i);
    RandomCase c(first + i);
    c.spec.outputs.max_logit = i % 3 == 0;
    c.spec.outputs.lse_base = i % 4 == 0 ? LseBase::k2 : LseBase::kE;
    c.spec.deterministic = i % 5 == 0;
    if (i % 6 == 0) c.spec.modifiers.sinks.assign(c.spec.q_heads, 0.5f);
    const Input input = Normal(c.spec, first + i);
    KernelHarness apart(c.spec, input, c.cuts), ending(c.spec, input, c.cuts);
    ASSERT_TRUE(apart.RunCutRows(*kernel_).ok());
    ASSERT_TRUE(ending.RunEndingRows(*kernel_).ok());
    ASSERT_EQ(apart.outputs(), ending.outputs()) << Describe(c.spec, c.cuts);
    ended += ending.tasks_ended();
  }
  EXPECT_GT(ended, Sampled(40));
}

// Sums of normal numbers with subnormal quotients. These must be kept, although the kernel's own
// arithmetic flushes such numbers.
TEST_P(KernelConformance, RowsThatEndInTasksKeepSubnormalOutputs) {
  if (!kernel_->ends_rows()) GTEST_SKIP() << GetParam() << " does not end rows";
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 4);
  spec.sequences = {Rows(100, 300)};
  Input input = InputOf(spec);
  for (size_t i = 0; i < input.v.size(); ++i) input.v[i] = i % 8 < 4 ? 0x1p-126 : 0;
  KernelHarness apart(spec, input, {}), ending(spec, input, {});
  ASSERT_TRUE(apart.RunCutRows(*kernel_).ok());
  ASSERT_TRUE(ending.RunEndingRows(*kernel_).ok());
  EXPECT_EQ(apart.outputs(), ending.outputs());
  EXPECT_GT(ending.tasks_ended(), 0);
  const float subnormal = ending.answer().out[0];
  EXPECT_GT(subnormal, 0.0f);
  EXPECT_LT(subnormal, 0x1p-126f);
}

// Few rows over many keys: chunks of keys, and unpacked keys.
TEST_P(KernelConformance, FewRowsThatBeginAndEndInOneTaskHaveTheSameBits) {
  if (!kernel_->ends_rows()) GTEST_SKIP() << GetParam() << " does not end rows";
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const int64_t rows : {1, 3, 20}) {
      AttentionSpec spec = Spec(dtype, 4, 2, 16);
      spec.sequences = {Rows(rows, 9000)};
      spec.masks = {Causal()};
      const Input input = Normal(spec, rows);
      KernelHarness apart(spec, input, {}), ending(spec, input, {});
      ASSERT_TRUE(apart.RunCutRows(*kernel_).ok());
      ASSERT_TRUE(ending.RunEndingRows(*kernel_).ok());
      ASSERT_EQ(apart.outputs(), ending.outputs()) << DataTypeName(dtype) << " " << rows;
      EXPECT_GT(ending.tasks_ended(), 0);
    }
  }
}

TEST_P(KernelConformance, EveryHeadDimensionAtTheEdgesOfPanels) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const int32_t dim : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 128, 255, 256}) {
      AttentionSpec spec = Spec(dtype, 2, 1, dim);
      spec.head_dim_v = 257 - dim;
      spec.sequences = {Rows(13, 70)};
      spec.masks = {Causal()};
      ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, dim), {}));
    }
  }
}

TEST_P(KernelConformance, LengthsAtTheEdgesOfTilesAndBlocks) {
  for (const int64_t rows : {1, 5, 6, 7, 95, 96, 97, 193}) {
    for (const int64_t keys : {1, 255, 256, 257, 513}) {
      for (const DataType dtype :
           {(rows + keys) % 2 == 0 ? DataType::kFp32 : DataType::kFp16, DataType::kBf16}) {
        AttentionSpec spec = Spec(dtype, 1, 1, 16);
        spec.sequences = {Rows(rows, keys)};
        spec.masks = {Causal()};
        ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, rows * 1000 + keys), {}));
      }
    }
  }
}

// Scores, also beyond ±1e4, that fp32 represents exactly: rounding them would hide all other
// errors.
TEST_P(KernelConformance, LargeLogitsStayWithinTheBudget) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    for (const double scale : {40.0 / 8, 64.0, 1280.0}) {  // The usual scale is 1/8.
      AttentionSpec spec = Spec(dtype, 2, 2, 64);
      spec.sequences = {Rows(40, 300)};
      spec.scale = scale, spec.masks = {Causal()};
      Input input = Normal(spec, 7);
      for (auto* tensor : {&input.q, &input.k})
        for (double& value : *tensor) value = std::round(value * 8) / 8;
      ASSERT_TRUE(WithinBudget(*kernel_, spec, input, {})) << scale;
    }
  }
}

TEST_P(KernelConformance, AScoreOfTenThousandTakesAllTheWeight) {
  for (const double score : {1e4, -1e4}) {
    AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 1);
    spec.sequences = {Rows(1, 600)};
    spec.scale = 1;
    Input input = InputOf(spec);
    input.q = {1};
    for (size_t j = 0; j < input.k.size(); ++j) {
      input.k[j] = j == 300 ? score : 0.5 * score - 1e4;
      input.v[j] = static_cast<double>(j);
    }
    KernelHarness harness(spec, input, {});
    ASSERT_TRUE(harness.Run(*kernel_).ok());
    EXPECT_EQ(harness.answer().out[0], 300.0f);
    EXPECT_EQ(harness.answer().lse[0], static_cast<float>(score));
  }
}

TEST_P(KernelConformance, EqualKeysGiveTheMeanOfV) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 4);
  spec.sequences = {Rows(3, 512)};
  Input input = InputOf(spec);
  std::fill(input.q.begin(), input.q.end(), 1.0);
  std::fill(input.k.begin(), input.k.end(), 0.25);
  for (size_t i = 0; i < input.v.size(); ++i) input.v[i] = static_cast<double>(i / 4 % 2);
  KernelHarness harness(spec, input, {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  for (const float value : harness.answer().out) EXPECT_EQ(value, 0.5f);
}

// Two equal scores, from products with 22 bits and sums with 33 bits. A product without the last
// bits makes one of them 1/16 smaller.
TEST_P(KernelConformance, ProductsOfFp16AreExact) {
  AttentionSpec spec = Spec(DataType::kFp16, 1, 1, 3);
  spec.head_dim_v = 1;
  spec.sequences = {Rows(1, 2)};
  spec.scale = 65536;
  Input input = InputOf(spec);
  const double below_two = 2 - std::ldexp(1, -10);
  input.q = {below_two, 1, 1};
  input.k = {below_two, 0, 0, 0, 4 - std::ldexp(1, -8), std::ldexp(1, -20)};
  input.v = {0, 1};
  KernelHarness harness(spec, input, {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  EXPECT_EQ(harness.answer().out[0], 0.5f);
}

TEST_P(KernelConformance, SubnormalsOfFp16Count) {
  AttentionSpec spec = Spec(DataType::kFp16, 1, 1, 3);
  spec.sequences = {Rows(5, 9)};
  Input input = Normal(spec, 3);
  for (double& value : input.v) value = std::ldexp(std::round(value * 8), -24);
  ASSERT_TRUE(WithinBudget(*kernel_, spec, input, {}));
}

TEST_P(KernelConformance, SubnormalsOfFp32AmongNormalNumbersAreWithinTheBudget) {
  AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 20);
  spec.sequences = {Rows(33, 90)};
  Input input = Normal(spec, 5);
  for (std::vector<double>* tensor : {&input.q, &input.k, &input.v})
    for (size_t i = 0; i < tensor->size(); i += 3) (*tensor)[i] = std::ldexp((*tensor)[i], -135);
  ASSERT_TRUE(WithinBudget(*kernel_, spec, input, {}));
}

TEST_P(KernelConformance, ManyCallsEqualOneWithinTheBudget) {
  AttentionSpec spec = Spec(DataType::kBf16, 4, 2, 64);
  spec.sequences = {Rows(100, 1000)};
  spec.masks = {Causal()};
  Cuts cuts;
  for (int64_t key = 37; key < 1000; key += 91) cuts.keys.push_back(key);
  cuts.call_per_task = true;
  ASSERT_TRUE(WithinBudget(*kernel_, spec, Normal(spec, 23), cuts));
}

TEST_P(KernelConformance, MergeOfTwoHalvesEqualsTheWhole) {
  AttentionSpec spec = Spec(DataType::kFp32, 3, 3, 20);
  spec.sequences = {Rows(30, 200)};
  Cuts cuts;
  cuts.keys = {80};
  const Input input = Normal(spec, 29);
  KernelHarness whole(spec, input, cuts), other(spec, input, cuts);
  ASSERT_TRUE(whole.Run(*kernel_).ok());  // Gives both their identity states and buffers.
  std::vector<KernelTask> left = whole.Tasks(), right = other.Tasks();
  KernelOp op;
  for (std::vector<KernelTask>* side : {&left, &right}) {
    op.kind = KernelOp::Kind::kIdentity;
    op.target = (*side)[0].out_q;
    ASSERT_TRUE(kernel_->Apply(whole.job(), op).ok());
  }
  ASSERT_TRUE(kernel_->Accumulate(whole.job(), {&left[0], 1}, {}).ok());
  ASSERT_TRUE(kernel_->Accumulate(other.job(), {&right[1], 1}, {}).ok());
  op.kind = KernelOp::Kind::kMerge;
  op.source = right[0].out_q;
  op.target = left[0].out_q;
  ASSERT_TRUE(kernel_->Apply(whole.job(), op).ok());
  ASSERT_TRUE(whole.FinishAll(*kernel_).ok());
  EXPECT_TRUE(reference::CheckWithinBudget(input, whole.answer()));
}

TEST_P(KernelConformance, StopEndsACallWithCancelled) {
  AttentionSpec spec = Spec(DataType::kFp32, 1, 1, 16);
  spec.sequences = {Rows(200, 600)};
  KernelHarness harness(spec, Normal(spec, 31), {});
  std::atomic<bool> stop{true};
  std::atomic<int64_t> progress{0};
  EXPECT_EQ(harness.Run(*kernel_, {&stop, &progress}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(progress.load(), 0);
  stop = false;
  EXPECT_TRUE(harness.Run(*kernel_, {&stop, &progress}).ok());
  EXPECT_GT(progress.load(), 0);
}

TEST_P(KernelConformance, NoTasksAreDoneAtOnce) {
  AttentionSpec spec = Spec(DataType::kFp16, 1, 1, 16);
  spec.sequences = {Rows(4, 0)};
  KernelHarness harness(spec, Normal(spec, 37), {});
  ASSERT_TRUE(harness.Run(*kernel_).ok());
  for (const float value : harness.answer().out) EXPECT_EQ(value, 0.0f);
}

// fp32 in two bf16 parts: judged by its own naive error, which is far above that of fp32, and
// refused without AMX.
TEST_P(KernelConformance, Bf16x3IsWithinItsBudgetOrRefused) {
  const uint64_t first = 20261122;
  for (int i = 0; i < Sampled(16) && GetParam() != "reference"; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first + i);
    RandomCase c(first + i);
    c.spec.dtype = DataType::kFp32;
    c.spec.arithmetic = Arithmetic::kBf16x3;
    const Input input = Normal(c.spec, first + i);
    if (GetParam() == "amx") {
      ASSERT_TRUE(WithinBudget(*kernel_, c.spec, input, c.cuts));
      continue;
    }
    KernelHarness harness(c.spec, input, c.cuts);
    if (harness.Tasks().empty()) continue;
    const absl::Status status = harness.Run(*kernel_);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  }
}

TEST_P(KernelConformance, Bf16x3IsNotFp32) {
  if (GetParam() != "amx") GTEST_SKIP() << "served with AMX only";
  AttentionSpec spec = Spec(DataType::kFp32, 2, 1, 64);
  spec.sequences = {Rows(60, 600)};
  const Input input = Normal(spec, 37);
  KernelHarness fp32(spec, input, {});
  ASSERT_TRUE(fp32.Run(*kernel_).ok());
  spec.arithmetic = Arithmetic::kBf16x3;
  KernelHarness split(spec, input, {});
  ASSERT_TRUE(split.Run(*kernel_).ok());
  const std::vector<float> a = fp32.answer().out, b = split.answer().out;
  double apart = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart = std::max<double>(apart, std::fabs(a[i] - b[i]));
    largest = std::max<double>(largest, std::fabs(a[i]));
  }
  EXPECT_GT(apart, 1e-6 * largest);
  EXPECT_LT(apart, 3e-5 * largest);
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelConformance, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

// The whole tile's rows, and its number of keys, determine if a block is processed whole or in
// parts.
TEST_P(KernelConformance, ARowDoesNotDependOnWhatItsNeighboursSee) {
  struct Variant {
    double scale;
    int64_t keys;
    DataType dtype;
    Arithmetic arithmetic = Arithmetic::kOfType;
  };
  for (const Variant& v : {Variant{0.3, 600, DataType::kBf16}, Variant{-0.3, 352, DataType::kBf16},
                           Variant{0.0, 600, DataType::kBf16}, Variant{0.3, 448, DataType::kBf16},
                           Variant{0.3, 352, DataType::kFp16},
                           Variant{0.3, 352, DataType::kFp32, Arithmetic::kBf16x3}}) {
    if (v.arithmetic == Arithmetic::kBf16x3 && GetParam() != "amx") continue;
    SCOPED_TRACE(v.keys);
    AttentionSpec spec = Spec(v.dtype, 2, 1, 40);
    spec.arithmetic = v.arithmetic;
    spec.scale = v.scale;
    spec.sequences = {Rows(70, v.keys)};
    const Input input = Normal(spec, 23);
    KernelHarness alone(spec, input, {});
    ASSERT_TRUE(alone.Run(*kernel_).ok());
    spec.masks = {Mask(), Causal()};
    spec.masks[1].query_heads = {1};
    KernelHarness beside(spec, input, {});
    ASSERT_TRUE(beside.Run(*kernel_).ok());
    const reference::Answer a = alone.answer(), b = beside.answer();
    int64_t same = 0;
    for (int64_t row = 0; row < 70; ++row) {
      EXPECT_EQ(a.lse[row * 2], b.lse[row * 2]) << row;
      for (int64_t d = 0; d < 40; ++d) EXPECT_EQ(a.out[row * 80 + d], b.out[row * 80 + d]) << row;
      same += a.lse[row * 2 + 1] == b.lse[row * 2 + 1] ? 1 : 0;
    }
    EXPECT_LT(same, 5) << "the other head does see less";
  }
}

}  // namespace
}  // namespace annulus
