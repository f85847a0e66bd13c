#include "client/cli/verify/verify_gradients.h"

#include <cmath>
#include <vector>

#include "attention/spec/bias_and_mask_inputs.h"
#include "gtest/gtest.h"
#include "tests/client/cli/verify/small_gradients.h"
#include "tests/reference/from_spec.h"
#include "tests/reference/reference_gradients.h"

namespace annulus {
namespace {

// A job with the answer of the naive reference, which shares no code with the verifier.
class Solved {
 public:
  explicit Solved(const AttentionSpec& spec) : spec_(spec) {
    const reference::Precision precision = reference::PrecisionOf(spec.dtype);
    reference::Input input = reference::InputOf(spec);
    FillNormal(3, precision, 1.0, &input);
    FillPairs(6, spec, &input);
    const reference::Upstream up =
        MakeUpstream(input, precision, precision, spec.gradients.d_lse, 4);
    const BiasAndMaskInputs pairs(spec);
    const reference::Gradients answer =
        NaiveGradients(input, up, precision, {}, pairs.d_bias ? pairs.bias_heads : 0);
    if (pairs.d_bias) Put(TensorId::kDBias, answer.d_bias);
    Put(TensorId::kQ, input.q);
    Put(TensorId::kK, input.k);
    Put(TensorId::kV, input.v);
    Put(TensorId::kOut, up.out);
    Put(TensorId::kLse, up.lse);
    Put(TensorId::kDOut, up.d_out);
    if (spec.gradients.d_lse) Put(TensorId::kDLse, up.d_lse);
    Put(TensorId::kDq, answer.dq);
    Put(TensorId::kDk, answer.dk);
    Put(TensorId::kDv, answer.dv);
    if (!spec.modifiers.sinks.empty()) Put(TensorId::kDSink, answer.d_sink);
    memory_[TensorId::kBias] = BiasBytes(spec, input);
    memory_[TensorId::kBitMask] = BitBytes(spec, input);
    memory_[TensorId::kLseOffset] = OffsetBytes(spec, input);
  }

  GradientReport Verify(int64_t count, uint64_t seed = 5) const {
    std::map<TensorId, const std::byte*> tensors;
    for (const auto& [id, bytes] : memory_) tensors[id] = bytes.data();
    return VerifyGradients(spec_, tensors, count, seed);
  }
  // Verifies the answer against another spec.
  GradientReport VerifyAs(const AttentionSpec& spec) const {
    std::map<TensorId, const std::byte*> tensors;
    for (const auto& [id, bytes] : memory_) tensors[id] = bytes.data();
    return VerifyGradients(spec, tensors, 1000, 5);
  }

  // Inverts every bit of a tensor's first row.
  void Invert(TensorId id) {
    const std::vector<TensorInfo> table = TensorTable(spec_);
    for (int64_t i = 0; i < FindTensor(table, id)->row_bytes(); ++i)
      memory_.at(id)[i] ^= std::byte{0xff};
  }
  std::byte& Damage(TensorId id) { return memory_.at(id)[memory_.at(id).size() - 1]; }

 private:
  void Put(TensorId id, const std::vector<double>& values) {
    const std::vector<TensorInfo> table = TensorTable(spec_);
    memory_[id] = BytesOf(reference::PrecisionOf(FindTensor(table, id)->dtype), values);
  }

  const AttentionSpec spec_;
  std::map<TensorId, std::vector<std::byte>> memory_;
};

AttentionSpec SmallSpec(DataType dtype) {
  AttentionSpec spec = SmallGradients(dtype);
  spec.gradients.d_lse = true;
  return spec;
}

TEST(VerifyGradientsTest, ARightAnswerPasses) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    const GradientReport report = Solved(SmallSpec(dtype)).Verify(1000);
    EXPECT_TRUE(report.within()) << report.error << " of " << report.budget;
    EXPECT_GT(report.error, 0);
    EXPECT_EQ(report.q_rows, 55);
    EXPECT_EQ(report.k_rows, 50);
  }
}

TEST(VerifyGradientsTest, SoftCapAlibiAndNoGradientIntoLse) {
  AttentionSpec spec = SmallSpec(DataType::kFp32);
  spec.gradients.d_lse = false;
  spec.modifiers.soft_cap = 0.9;
  spec.modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  const GradientReport report = Solved(spec).Verify(1000);
  EXPECT_TRUE(report.within()) << report.error << " of " << report.budget;
}

TEST(VerifyGradientsTest, DropoutIsThatOfItsSeed) {
  AttentionSpec spec = SmallSpec(DataType::kFp32);
  spec.dropout = Dropout{0.4, 7};
  const Solved solved(spec);
  const GradientReport report = solved.Verify(1000);
  EXPECT_TRUE(report.within()) << report.error << " of " << report.budget;
  spec.dropout->seed = 8;
  EXPECT_FALSE(solved.VerifyAs(spec).within());
}

TEST(VerifyGradientsTest, BiasBitMaskAndOffsetAreThoseOfTheJob) {
  for (const int32_t heads : {1, 4}) {
    AttentionSpec spec = SmallSpec(DataType::kFp32);
    spec.modifiers.bias = Bias{DataType::kFp16, heads};
    spec.modifiers.lse_offset = true;
    spec.modifiers.soft_cap = 2;
    spec.masks[0].bit_mask = true;
    spec.bit_mask_heads = heads;
    EXPECT_TRUE(Solved(spec).Verify(1000).within());
    for (const TensorId id : {TensorId::kBias, TensorId::kBitMask, TensorId::kLseOffset}) {
      Solved other(spec);
      other.Invert(id);
      EXPECT_FALSE(other.Verify(1000).within()) << TensorName(id) << " " << heads;
    }
  }
}

TEST(VerifyGradientsTest, TheGradientOfABiasOfAllHeadsIsTheirSum) {
  AttentionSpec spec = SmallSpec(DataType::kBf16);
  spec.modifiers.bias = Bias{DataType::kUnspecified, 1};
  spec.modifiers.soft_cap = 1.5;
  spec.gradients.d_bias = true;
  Solved solved(spec);
  EXPECT_TRUE(solved.Verify(1000).within());
  EXPECT_TRUE(solved.Verify(9).within());
  solved.Damage(TensorId::kDBias) ^= std::byte{0x43};
  const GradientReport report = solved.Verify(1000);
  EXPECT_FALSE(report.within());
  EXPECT_EQ(report.worst_tensor, TensorId::kDBias);
  EXPECT_EQ(report.worst_head, 0);
}

// One key whose dO · v equals delta: dS is 0, also in the naive computation in every order.
TEST(VerifyGradientsTest, FewMayBeOffByWhatTheyAreMadeOf) {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.gradients.d_bias = spec.gradients.d_lse = true;
  spec.dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 2;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = 1;
  spec.modifiers.bias = Bias{DataType::kFp32, 1};
  spec.scale = 1;
  std::map<TensorId, std::vector<float>> tensors = {
      {TensorId::kQ, {0, 0}},    {TensorId::kK, {1, 0.5f}},     {TensorId::kV, {1.5f, -0.25f}},
      {TensorId::kBias, {0}},    {TensorId::kLse, {0}},         {TensorId::kOut, {1.5f, 0.25f}},
      {TensorId::kDOut, {1, 1}}, {TensorId::kDLse, {0.5f}},     {TensorId::kDq, {0, 0}},
      {TensorId::kDk, {0, 0}},   {TensorId::kDv, {1.0f, 1.0f}}, {TensorId::kDBias, {0}}};
  const auto worst = [&](TensorId id, float error) {
    auto answer = tensors;
    answer[id][0] += error;
    std::map<TensorId, const std::byte*> memory;
    for (const auto& [each, values] : answer) {
      memory[each] = reinterpret_cast<const std::byte*>(values.data());
    }
    const GradientReport report = VerifyGradients(spec, memory, 10, 5);
    return report.within() ? TensorId::kUnspecified : report.worst_tensor;
  };
  // The terms of dO · v and delta add up to 1.75 and 2.25: half an ulp for each of two roundings,
  // times two.
  const float half_ulp = std::ldexp(1.0f, -24), most = 2 * 2 * (1.75f + 2.25f) * half_ulp;
  for (const TensorId id : {TensorId::kDq, TensorId::kDBias}) {
    for (const float sign : {-1.0f, 1.0f}) {
      EXPECT_EQ(worst(id, sign * most), TensorId::kUnspecified) << TensorName(id);
      EXPECT_EQ(worst(id, sign * std::nextafter(most, 1.0f)), id) << TensorName(id);
    }
  }
  tensors[TensorId::kQ] = {1, -2};  // The score stays 0.
  EXPECT_EQ(worst(TensorId::kDk, 2 * most), TensorId::kUnspecified);
  EXPECT_EQ(worst(TensorId::kDk, std::nextafter(2 * most, 1.0f)), TensorId::kDk);
  // The weight is exactly 1. Its exponent has sizes 2, so the weight may have an error of 9 half
  // ulps, times two. The budget of any number near 1 has 4.
  EXPECT_EQ(worst(TensorId::kDv, 22 * half_ulp), TensorId::kUnspecified);
  EXPECT_EQ(worst(TensorId::kDv, 24 * half_ulp), TensorId::kDv);
}

// With many rows, only the naive error is permitted. The answer uses an fp32 LSE, which the
// verifier does not use: with such large sinks it is rounded to parts of 1e-5.
TEST(VerifyGradientsTest, ManyRowsOfLargeLsePass) {
  for (const float sink : {0.0f, 10.0f, 120.0f}) {
    AttentionSpec spec = SmallSpec(DataType::kFp32);
    spec.sequences.resize(1);
    spec.sequences[0].q_len = 4200;
    spec.masks[0].causal = false;
    spec.modifiers.sinks = {sink, sink + 1, sink - 1, sink};
    const GradientReport report = Solved(spec).Verify(5000);
    EXPECT_TRUE(report.within()) << sink << ": " << TensorName(report.worst_tensor) << " "
                                 << report.error << " of " << report.budget;
  }
}

TEST(VerifyGradientsTest, ASampleIsAsLargeAsAskedFor) {
  const GradientReport report = Solved(SmallSpec(DataType::kFp32)).Verify(7);
  EXPECT_EQ(report.q_rows, 7);
  EXPECT_EQ(report.k_rows, 7);
  EXPECT_TRUE(report.within());
}

TEST(VerifyGradientsTest, DamageIsFoundInEveryTensor) {
  AttentionSpec spec = SmallSpec(DataType::kFp32);
  spec.modifiers.sinks = {0.5, -1, 0, 2};
  spec.modifiers.bias = Bias{DataType::kBf16, 4};
  spec.gradients.d_bias = true;
  EXPECT_TRUE(Solved(spec).Verify(1000).within());
  for (const TensorId id :
       {TensorId::kDq, TensorId::kDk, TensorId::kDv, TensorId::kDSink, TensorId::kDBias}) {
    Solved solved(spec);
    solved.Damage(id) ^= std::byte{0x43};  // The exponent of the last number, which may be 0.
    const GradientReport report = solved.Verify(1000);
    EXPECT_FALSE(report.within()) << TensorName(id);
    EXPECT_EQ(report.worst_tensor, id);
    EXPECT_EQ(report.worst_head, id == TensorId::kDk || id == TensorId::kDv ? 1 : 3);
  }
}

}  // namespace
}  // namespace annulus
