#include "attention/spec/spec.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "attention/spec/tensor_table.h"

namespace annulus {
namespace {

TEST(SpecTest, RowsAreSumsOverSequences) {
  AttentionSpec spec;
  EXPECT_EQ(spec.q_rows(), 0);
  spec.sequences.resize(3);
  spec.sequences[0].q_len = 5;
  spec.sequences[2].q_len = 7;
  spec.sequences[1].kv_len = 11;
  EXPECT_EQ(spec.q_rows(), 12);
  EXPECT_EQ(spec.kv_rows(), 11);
}

TEST(SpecTest, DefaultsFollowTheFieldsTheyStandFor) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.head_dim = 64;
  EXPECT_EQ(spec.value_dim(), 64);
  EXPECT_EQ(spec.output_dtype(), DataType::kBf16);
  EXPECT_DOUBLE_EQ(spec.scale_or_default(), 0.125);
  spec.head_dim_v = 32;
  spec.out_dtype = DataType::kFp32;
  spec.scale = 0.0;
  EXPECT_EQ(spec.value_dim(), 32);
  EXPECT_EQ(spec.output_dtype(), DataType::kFp32);
  EXPECT_EQ(spec.scale_or_default(), 0.0);
}

TEST(SpecTest, EveryNameParsesBackInAnySpelling) {
  for (int i = 0; i <= static_cast<int>(kLastStrategy); ++i) {
    const Strategy strategy = static_cast<Strategy>(i);
    EXPECT_EQ(ParseStrategy(StrategyName(strategy)), strategy);
  }
  for (int i = 0; i <= static_cast<int>(kLastLayout); ++i) {
    const Layout layout = static_cast<Layout>(i);
    EXPECT_EQ(ParseLayout(LayoutName(layout)), layout);
  }
  for (int i = 0; i <= static_cast<int>(HeadAssignment::kUnits); ++i) {
    const HeadAssignment deal = static_cast<HeadAssignment>(i);
    EXPECT_EQ(ParseHeadDeal(HeadDealName(deal)), deal);
  }
  EXPECT_EQ(ParseHeadDeal("thirds"), std::nullopt);
  EXPECT_EQ(ParseStrategy("RING_PASS_KV"), Strategy::kRingPassKv);
  EXPECT_EQ(ParseStrategy("all-gather-kv"), Strategy::kAllGatherKv);
  EXPECT_EQ(ParseStrategy("rotate-kv"), Strategy::kRotateKv);
  EXPECT_EQ(ParseStrategy("ulysses-ring"), Strategy::kUlyssesRing);
  EXPECT_EQ(ParseStrategy("tree"), Strategy::kTree);
  EXPECT_EQ(ParseStrategy("halo"), Strategy::kHalo);
  EXPECT_EQ(ParseLayout("striped"), Layout::kStriped);
  EXPECT_EQ(ParseLayout("by-area"), Layout::kByArea);
  EXPECT_EQ(ParseLayout("Zigzag_Per-sequence"), Layout::kZigzagPerSequence);
  EXPECT_EQ(ParseStrategy("ring"), std::nullopt);
  EXPECT_EQ(ParseStrategy(""), std::nullopt);
  EXPECT_EQ(ParseLayout("unknown"), std::nullopt);
  EXPECT_EQ(StrategyName(static_cast<Strategy>(99)), "unknown");
}

TEST(TensorTableTest, ForwardTakesThreeTensorsAndGivesTwo) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.head_dim_v = 48;
  const std::vector<TensorInfo> table = TensorTable(spec);
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(FindTensor(table, TensorId::kQ)->row_bytes(), 8 * 64 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kK)->row_bytes(), 2 * 64 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kK)->rows, RowSpace::kKey);
  EXPECT_EQ(FindTensor(table, TensorId::kV)->row_bytes(), 2 * 48 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kOut)->row_bytes(), 8 * 48 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kLse)->row_bytes(), 8 * 4);
  EXPECT_EQ(FindTensor(table, TensorId::kLse)->direction, Direction::kOutput);
  EXPECT_EQ(FindTensor(table, TensorId::kDq), nullptr);
  EXPECT_EQ(FindTensor(table, TensorId::kMaxLogit), nullptr);
  spec.outputs.max_logit = true;
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kMaxLogit)->row_bytes(), 8 * 4);
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kMaxLogit)->direction, Direction::kOutput);
  spec.out_dtype = DataType::kFp32;
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kOut)->row_bytes(), 8 * 48 * 4);
}

TEST(TensorTableTest, TheRestOfAnLseStaysWithAKeptStateAndIsSentOnRequest) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 8;
  spec.head_dim = 64;
  const auto direction = [&] {
    const std::vector<TensorInfo> table = TensorTable(spec);
    const TensorInfo* rest = FindTensor(table, TensorId::kLseRest);
    return rest == nullptr ? std::nullopt : std::optional<Direction>(rest->direction);
  };
  EXPECT_EQ(direction(), std::nullopt);
  spec.forward.keep_state = absl::Seconds(1);
  EXPECT_EQ(direction(), Direction::kKept);
  spec.outputs.lse_rest = true;
  EXPECT_EQ(direction(), Direction::kOutput);
  spec.operation = Operation::kGradients;
  EXPECT_EQ(direction(), Direction::kInput);
  spec.outputs.lse_rest = false;
  EXPECT_EQ(direction(), std::nullopt);
  spec.gradients.state = "job";
  EXPECT_EQ(direction(), Direction::kLent);
}

TEST(TensorTableTest, DOutIsOfItsOwnType) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.out_dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 64;
  spec.operation = Operation::kGradients;
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kDOut)->dtype, DataType::kBf16);
  spec.gradients.d_out_dtype = DataType::kFp32;
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kDOut)->dtype, DataType::kFp32);
}

TEST(TensorTableTest, GradientsTakeWhatForwardGave) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp16;
  spec.out_dtype = DataType::kFp32;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.head_dim_v = 48;
  spec.operation = Operation::kGradients;
  EXPECT_EQ(TensorTable(spec).size(), 9u);
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kDLse), nullptr);
  spec.gradients.d_lse = true;
  const std::vector<TensorInfo> table = TensorTable(spec);
  ASSERT_EQ(table.size(), 10u);
  EXPECT_EQ(FindTensor(table, TensorId::kOut)->row_bytes(), 8 * 48 * 4);
  EXPECT_EQ(FindTensor(table, TensorId::kOut)->direction, Direction::kInput);
  EXPECT_EQ(FindTensor(table, TensorId::kDOut)->row_bytes(), 8 * 48 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kDLse)->row_bytes(), 8 * 4);
  EXPECT_EQ(FindTensor(table, TensorId::kDq)->row_bytes(), 8 * 64 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kDk)->row_bytes(), 2 * 64 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kDv)->row_bytes(), 2 * 48 * 2);
  EXPECT_EQ(FindTensor(table, TensorId::kDv)->rows, RowSpace::kKey);
  EXPECT_EQ(FindTensor(table, TensorId::kDv)->direction, Direction::kOutput);
  spec.modifiers.sinks.assign(8, 1.0f);
  const std::vector<TensorInfo> with_sinks = TensorTable(spec);
  ASSERT_EQ(with_sinks.size(), 11u);
  EXPECT_EQ(FindTensor(with_sinks, TensorId::kDSink)->row_bytes(), 8 * 4);
  EXPECT_EQ(FindTensor(with_sinks, TensorId::kDSink)->rows, RowSpace::kQuery);
  EXPECT_EQ(FindTensor(with_sinks, TensorId::kDSink)->direction, Direction::kOutput);
}

TEST(TensorTableTest, TheGradientOfABiasIsShapedAsItAndOfFp32) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 8;
  spec.kv_heads = 2;
  spec.head_dim = 64;
  spec.sequences.resize(2);
  spec.sequences[1].kv_len = 33;
  spec.operation = Operation::kGradients;
  spec.modifiers.bias = Bias{DataType::kUnspecified, 8};
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kDBias), nullptr);
  spec.gradients.d_bias = true;
  const std::vector<TensorInfo> table = TensorTable(spec);
  EXPECT_EQ(FindTensor(table, TensorId::kDBias)->row_bytes(), 8 * 33 * 4);
  EXPECT_EQ(FindTensor(table, TensorId::kDBias)->direction, Direction::kOutput);
  EXPECT_EQ(FindTensor(table, TensorId::kBias)->row_bytes(), 8 * 33 * 2);
  spec.operation = Operation::kForward;
  EXPECT_EQ(FindTensor(TensorTable(spec), TensorId::kDBias), nullptr);
}

TEST(TensorTableTest, AStateLendsAllButTheGradientsIntoItsOutputs) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp16;
  spec.q_heads = spec.kv_heads = 2;
  spec.head_dim = 8;
  spec.sequences = {{3, 5, "", 0, 0}};
  spec.modifiers.bias = Bias();
  spec.operation = Operation::kGradients;
  spec.gradients.d_lse = true;
  spec.outputs.lse_rest = true;
  const std::vector<TensorInfo> whole = TensorTable(spec);
  spec.gradients.state = "job";
  const std::vector<TensorInfo> table = TensorTable(spec);
  ASSERT_EQ(table.size(), whole.size());
  ASSERT_NE(FindTensor(table, TensorId::kLseRest), nullptr);
  for (size_t i = 0; i < table.size(); ++i) {
    const bool sent = table[i].id == TensorId::kDOut || table[i].id == TensorId::kDLse;
    const bool lent = whole[i].direction == Direction::kInput && !sent;
    EXPECT_EQ(table[i].direction, lent ? Direction::kLent : whole[i].direction)
        << TensorName(table[i].id);
    EXPECT_EQ(table[i].row_bytes(), whole[i].row_bytes());
  }
  spec.operation = Operation::kForward;
  EXPECT_EQ(TensorTable(spec)[0].direction, Direction::kInput) << "the operation is another";
}

TEST(TensorTableTest, NamesFollowTheNumbersOfTheApi) {
  EXPECT_EQ(TensorName(TensorId::kQ), "q");
  EXPECT_EQ(TensorName(TensorId::kOut), "output");
  EXPECT_EQ(TensorName(TensorId::kMaxLogit), "max_logit");
  EXPECT_EQ(TensorName(TensorId::kDv), "dv");
  EXPECT_EQ(TensorName(TensorId::kBitMask), "bit_mask");
  EXPECT_EQ(TensorName(kLastTensor), "lse_rest");
  EXPECT_EQ(TensorName(static_cast<TensorId>(200)), "unknown");
}

}  // namespace
}  // namespace annulus
