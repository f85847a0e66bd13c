#include "attention/validate/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/attention/validate/validate_request.h"

namespace annulus {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ValidateTest, WhatIsServedPasses) {
  Request request;
  EXPECT_TRUE(request.Check().ok()) << request.Check();
  request.spec.masks[0].alignment = Mask::Alignment::kTopLeft;
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    request.spec.dtype = dtype;
    for (const DataType out : {DataType::kUnspecified, DataType::kFp32, dtype}) {
      request.spec.out_dtype = out;
      EXPECT_TRUE(request.Check().ok()) << request.Check();
    }
  }
  for (const Strategy strategy :
       {Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv, Strategy::kHalo,
        Strategy::kUlysses, Strategy::kUlyssesRing, Strategy::kRingPassQ, Strategy::kDoubleRing,
        Strategy::kTree}) {
    request.execution.strategy = strategy;
    for (const Layout layout : {Layout::kContiguous, Layout::kZigzag, Layout::kZigzagPerSequence,
                                Layout::kByArea, Layout::kStriped}) {
      request.execution.layout = layout;
      EXPECT_TRUE(request.Check().ok()) << request.Check();
    }
  }
  request.execution.strategy = Strategy::kUlyssesRing;
  request.execution.ulysses_degree = 16;
  request.execution.ring_degree = 4;
  request.execution.head_deal = HeadAssignment::kUnits;
  request.execution.stripe = 16;
  request.execution.world_size = 64;
  request.execution.priority = -10;
  request.spec.masks.clear();
  for (const double scale : {0.0, -0.0, -2.5, 0x1p64, -0x1p-64}) {
    request.spec.scale = scale;
    EXPECT_TRUE(request.Check().ok()) << request.Check();
  }
  request.spec.head_dim = request.spec.head_dim_v = 256;
  request.spec.sequences = {Sequence()};  // An empty job is valid.
  EXPECT_TRUE(request.Check().ok()) << request.Check();
}

TEST(ValidateTest, ElementTypes) {
  Request request;
  request.spec.dtype = DataType::kUnspecified;
  ExpectInvalid(request, "UNSUPPORTED_DTYPE", "spec.dtype");
  request.spec.dtype = static_cast<DataType>(9);
  ExpectInvalid(request, "UNSUPPORTED_DTYPE", "spec.dtype");
  request.spec.dtype = DataType::kFp16;
  request.spec.out_dtype = static_cast<DataType>(200);
  ExpectInvalid(request, "UNSUPPORTED_DTYPE", "spec.out_dtype");
  request.spec.out_dtype = DataType::kBf16;
  ExpectNotServed(request, "spec.out_dtype");
}

TEST(ValidateTest, EightBitKeysAreNotServed) {
  Request request;
  request.spec.dtype = DataType::kFp8E4m3;
  request.spec.out_dtype = DataType::kFp32;
  ExpectNotServed(request, "spec.dtype");
}

TEST(ValidateTest, UnknownEnums) {
  Request request;
  request.spec.operation = static_cast<Operation>(2);
  ExpectInvalid(request, "UNKNOWN_ENUM", "spec.operation");
  request = Request();
  request.spec.outputs.lse_base = static_cast<LseBase>(2);
  ExpectInvalid(request, "UNKNOWN_ENUM", "spec.outputs.lse_base");
  request = Request();
  request.spec.masks[0].alignment = static_cast<Mask::Alignment>(2);
  ExpectInvalid(request, "UNKNOWN_ENUM", "spec.masks[0].alignment");
  request = Request();
  request.spec.masks[0].ranges = {{0, 1, 0, 1, static_cast<MaskRange::Kind>(4)}};
  ExpectInvalid(request, "UNKNOWN_ENUM", "spec.masks[0].ranges[0].kind");
  request = Request();
  request.execution.strategy = static_cast<Strategy>(10);
  ExpectInvalid(request, "UNKNOWN_ENUM", "execution.strategy");
  request = Request();
  request.execution.layout = static_cast<Layout>(6);
  ExpectInvalid(request, "UNKNOWN_ENUM", "execution.layout");
  request = Request();
  request.execution.head_deal = static_cast<HeadAssignment>(3);
  ExpectInvalid(request, "UNKNOWN_ENUM", "execution.head_deal");
}

TEST(ValidateTest, ZeroAndNegativeDims) {
  for (const int32_t value : {0, -1, std::numeric_limits<int32_t>::min()}) {
    Request request;
    request.spec.q_heads = value;
    ExpectInvalid(request, "DIM_OVERFLOW", "spec.q_heads");
    request = Request();
    request.spec.kv_heads = value;
    ExpectInvalid(request, "DIM_OVERFLOW", "spec.kv_heads");
    request = Request();
    request.spec.head_dim = value;
    ExpectInvalid(request, "DIM_OVERFLOW", "spec.head_dim");
    request = Request();
    request.spec.head_dim_v = value < 0 ? value : -7;
    ExpectInvalid(request, "DIM_OVERFLOW", "spec.head_dim_v");
  }
}

TEST(ValidateTest, HeadsThatDoNotDivide) {
  Request request;
  request.spec.q_heads = 7;
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.q_heads");
  request.spec.q_heads = 1;
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.q_heads");
}

TEST(ValidateTest, Lengths) {
  Request request;
  request.spec.sequences[1].q_len = -1;
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences[1].q_len");
  request = Request();
  request.spec.sequences[0].kv_len = std::numeric_limits<int64_t>::min();
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences[0].kv_len");
  request = Request();
  request.spec.sequences[0].layer = 3;
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.sequences[0].layer");
  request = Request();
  request.spec.sequences.clear();
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.sequences");
}

TEST(ValidateTest, SumsAndProductsPast64Bits) {
  Request request;
  request.spec.sequences[1].q_len = kMost;
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences[1].q_len");
  request = Request();
  request.spec.sequences[1].kv_len = kMost;
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences[1].kv_len");
  for (const int64_t kv_len : {int64_t{0}, int64_t{1}, kMost}) {
    request = Request();
    request.spec.sequences.resize(1);
    request.spec.sequences[0].q_len = kMost;
    request.spec.sequences[0].kv_len = kv_len;
    ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences");
  }
  request.limits.max_heads = request.limits.max_head_dim = std::numeric_limits<int32_t>::max();
  request.spec.sequences[0].q_len = request.spec.sequences[0].kv_len = 8;
  request.spec.q_heads = request.spec.head_dim = std::numeric_limits<int32_t>::max();
  request.spec.kv_heads = 1;
  ExpectInvalid(request, "DIM_OVERFLOW", "spec.sequences");
}

TEST(ValidateTest, LimitsAreToldWithTheirNumbers) {
  Request request;
  request.limits.max_heads = 7;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.q_heads");
  const ErrorDetail detail = DetailOf(request.Check());
  EXPECT_EQ(detail.metadata.at("requested"), "8");
  EXPECT_EQ(detail.metadata.at("limit"), "7");
  request = Request();
  request.spec.kv_heads = 5000;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.kv_heads");
  request = Request();
  request.spec.head_dim = 257;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.head_dim");
  request = Request();
  request.spec.head_dim_v = 257;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.head_dim_v");
  request = Request();
  request.limits.max_sequences = 1;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.sequences");
  request = Request();
  request.spec.sequences[0].q_len = request.limits.max_rows;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.sequences");
  request = Request();
  request.spec.sequences[0].kv_len = request.limits.max_rows + 1;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.sequences");
  request = Request();
  request.limits.max_tensor_bytes = 8 * 8 * 64 * 2 - 1;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.sequences");
  request = Request();
  request.limits.max_masks = 0;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks");
  request = Request();
  request.execution.world_size = 65;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.world_size");
}

TEST(ValidateTest, ScaleMustBeZeroOrFarFromWhereFp32Ends) {
  for (const double scale : {kNan, kInfinity, -kInfinity, 1e39, 0x1.01p64, -0x1.ffp-65, 1e-39}) {
    Request request;
    request.spec.scale = scale;
    ExpectInvalid(request, "INVALID_SCALE", "spec.scale");
  }
}

TEST(ValidateTest, ModifiersDropoutAndFurtherOutputsAreServed) {
  Request request;
  request.spec.modifiers.soft_cap = 30;
  request.spec.modifiers.alibi_slopes.assign(8, -0.5f);
  request.spec.modifiers.sinks.assign(8, 0.0f);
  request.spec.dropout = Dropout{0, 1};
  request.spec.outputs.lse_base = LseBase::k2;
  request.spec.outputs.max_logit = true;
  EXPECT_TRUE(request.Check().ok());
}

TEST(ValidateTest, Modifiers) {
  for (const double cap : {0.0, -1.0, 0x1p-65, 0x1p65, 3.4e38, kNan, kInfinity}) {
    Request request;
    request.spec.modifiers.soft_cap = cap;
    ExpectInvalid(request, "INVALID_MODIFIER", "spec.modifiers.soft_cap");
  }
  Request request;
  request.spec.modifiers.alibi_slopes = {1.0f};
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.modifiers.alibi_slopes");
  request.spec.modifiers.alibi_slopes.assign(8, 1.0f);
  request.spec.modifiers.alibi_slopes[3] = std::nanf("");
  ExpectInvalid(request, "INVALID_MODIFIER", "spec.modifiers.alibi_slopes[3]");
  request = Request();
  request.spec.modifiers.sinks.assign(9, 1.0f);
  ExpectInvalid(request, "SHAPE_MISMATCH", "spec.modifiers.sinks");
  for (const double rate : {1.0, -0.1, kNan}) {
    request = Request();
    request.spec.dropout = Dropout{rate, 1};
    ExpectInvalid(request, "INVALID_MODIFIER", "spec.dropout.rate");
  }
}

TEST(ValidateTest, FieldsOfMasks) {
  Request request;
  request.spec.masks[0].window_left = -1;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].window_left");
  request = Request();
  request.spec.masks[0].window_right = -5;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].window_right");
  for (const int64_t chunk : {int64_t{0}, int64_t{-1}}) {
    request = Request();
    request.spec.masks[0].chunk = chunk;
    ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].chunk");
  }
  request = Request();
  request.spec.masks[0].prefix = -1;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].prefix");
  request = Request();
  request.spec.masks[0].always_visible = -1;
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].always_visible");
}

TEST(ValidateTest, RangesOfMasks) {
  const auto with = [](MaskRange range) {
    Request request;
    request.spec.masks[0].ranges = {{0, 1, 0, 1, MaskRange::Kind::kFull}, range};
    return request;
  };
  const auto kind = MaskRange::Kind::kCausal;
  const std::string path = "spec.masks[0].ranges[1]";
  ExpectInvalid(with({-1, 1, 0, 1, kind}), "INVALID_MASK", path + ".q_begin");
  ExpectInvalid(with({2, 1, 0, 1, kind}), "INVALID_MASK", path + ".q_end");
  ExpectInvalid(with({0, 1, -1, 1, kind}), "INVALID_MASK", path + ".k_begin");
  ExpectInvalid(with({0, 1, 3, 2, kind}), "INVALID_MASK", path + ".k_end");
  ExpectInvalid(with({0, kMost, 0, 1, kind}), "LIMIT_EXCEEDED", path + ".q_end");
  Request request = with({0, 1, 0, 1, kind});
  request.limits.max_mask_ranges = 1;
  ExpectInvalid(request, "LIMIT_EXCEEDED", "spec.masks[0].ranges");
}

TEST(ValidateTest, MasksOfHeadsAndSequences) {
  Request request;
  for (const int32_t head : {-1, 8}) {
    request.spec.masks[0].query_heads = {0, head};
    ExpectInvalid(request, "INVALID_MASK", "spec.masks[0].query_heads[1]");
  }
  request.spec.masks[0].query_heads = {3};
  request.spec.masks.push_back(request.spec.masks[0]);
  ExpectInvalid(request, "INVALID_MASK", "spec.masks[1].query_heads[0]");
  request = Request();
  for (const int32_t mask : {-1, 1}) {
    request.spec.sequences[1].mask = mask;
    ExpectInvalid(request, "INVALID_MASK", "spec.sequences[1].mask");
  }
  request.spec.masks.push_back(request.spec.masks[0]);
  request.spec.masks[1].query_heads = {1};
  request.spec.sequences[1].mask = 1;  // Not the first mask of its group.
  ExpectInvalid(request, "INVALID_MASK", "spec.sequences[1].mask");
  request = Request();
  request.spec.masks.clear();
  request.spec.sequences[0].mask = 1;
  ExpectInvalid(request, "INVALID_MASK", "spec.sequences[0].mask");
}

TEST(ValidateTest, ExecutionFields) {
  Request request;
  request.execution.world_size = -1;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.world_size");
  request = Request();
  request.execution.stripe = -1;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.stripe");
  request.execution.stripe = 4;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.stripe");
  for (const int32_t priority : {-11, 11, 1 << 30}) {
    request = Request();
    request.execution.priority = priority;
    ExpectInvalid(request, "INVALID_EXECUTION", "execution.priority");
  }
  request = Request();
  request.execution.ulysses_degree = -2;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.ulysses_degree");
  request.execution.ulysses_degree = 2;
  request.execution.world_size = 3;
  ExpectInvalid(request, "INVALID_EXECUTION", "execution.ulysses_degree");
}

TEST(ValidateTest, DegreesMustFitTheStrategyAndTheWorldSize) {
  const auto expect = [](const std::string& field, const Execution& execution) {
    Request request;
    request.execution = execution;
    SCOPED_TRACE(field);
    ExpectInvalid(request, "INVALID_EXECUTION", "execution." + field);
  };
  const auto of = [](Strategy strategy, int32_t world, int32_t ulysses, int32_t ring,
                     int32_t inner = 0, HeadAssignment deal = HeadAssignment::kAuto) {
    Execution execution;
    execution.strategy = strategy;
    execution.world_size = world;
    execution.ulysses_degree = ulysses;
    execution.ring_degree = ring;
    execution.inner_ring_degree = inner;
    execution.head_deal = deal;
    return execution;
  };
  expect("ring_degree", of(Strategy::kAuto, 4, 0, -1));
  expect("inner_ring_degree", of(Strategy::kDoubleRing, 4, 0, 0, -1));
  expect("ring_degree", of(Strategy::kAuto, 4, 0, 3));
  expect("ring_degree", of(Strategy::kUlyssesRing, 8, 2, 2));
  expect("ring_degree", of(Strategy::kUlysses, 4, 0, 2));
  expect("ulysses_degree", of(Strategy::kUlysses, 4, 2, 0));
  expect("ulysses_degree", of(Strategy::kRingPassKv, 4, 2, 0));
  expect("ulysses_degree", of(Strategy::kHalo, 0, 2, 0));
  expect("ring_degree", of(Strategy::kRotateKv, 4, 0, 2));
  expect("inner_ring_degree", of(Strategy::kDoubleRing, 6, 0, 0, 4));
  expect("inner_ring_degree", of(Strategy::kDoubleRing, 0, 0, 6, 4));
  expect("inner_ring_degree", of(Strategy::kRingPassKv, 4, 0, 0, 2));
  expect("head_deal", of(Strategy::kRingPassQ, 4, 0, 0, 0, HeadAssignment::kUnits));
  Request request;
  request.execution = of(Strategy::kUlyssesRing, 0, 64, 2);
  ExpectInvalid(request, "LIMIT_EXCEEDED", "execution.ring_degree");
}

TEST(ValidateTest, GradientsAreServedButNotWithEverything) {
  Request request;
  request.spec.operation = Operation::kGradients;
  request.spec.gradients.d_lse = true;
  request.spec.outputs.lse_rest = true;
  EXPECT_TRUE(Validate(request.spec, request.execution, Limits()).ok());
  request.spec.dtype = DataType::kBf16;
  request.spec.out_dtype = DataType::kFp32;
  request.spec.gradients.d_out_dtype = DataType::kFp32;
  EXPECT_TRUE(Validate(request.spec, request.execution, Limits()).ok());
  const auto expect = [](const std::string& field, void (*spoil)(Request&)) {
    Request spoilt;
    spoilt.spec.operation = Operation::kGradients;
    spoil(spoilt);
    SCOPED_TRACE(field);
    ExpectNotServed(spoilt, field);
  };
  expect("spec.outputs", [](Request& r) { r.spec.outputs.max_logit = true; });
  expect("spec.outputs", [](Request& r) { r.spec.outputs.lse_base = LseBase::k2; });
}

TEST(ValidateTest, FeaturesThatAreNotServedNameTheirField) {
  const auto expect = [](const std::string& field, void (*spoil)(Request&)) {
    Request request;
    spoil(request);
    SCOPED_TRACE(field);
    ExpectNotServed(request, field);
  };
  expect("spec.sequences[1].session", [](Request& r) { r.spec.sequences[1].session = "s"; });
  expect("execution.bf16_partials", [](Request& r) {
    r.execution.bf16_partials = true;
    r.execution.strategy = Strategy::kRotateKv;
  });
  expect("execution.timeline", [](Request& r) { r.execution.timeline = true; });
}

}  // namespace
}  // namespace annulus
