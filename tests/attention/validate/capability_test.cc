#include "attention/validate/capability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"

namespace annulus {
namespace {

AttentionSpec PlainSpec() {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = spec.kv_heads = spec.head_dim = 1;
  spec.sequences.resize(3);
  return spec;
}

std::vector<std::string> Names(const std::vector<Capability>& features) {
  std::vector<std::string> names;
  for (const Capability& feature : features) names.push_back(feature.feature);
  return names;
}

TEST(CapabilityTest, RowsAreWellFormedAndUnique) {
  std::set<std::string> names;
  for (const Capability& row : CapabilityTable()) {
    EXPECT_TRUE(names.insert(row.feature).second) << row.feature;
    EXPECT_EQ(row.served, row.why_not.empty()) << row.feature;
    EXPECT_TRUE(row.field_path.rfind("spec.", 0) == 0 || row.field_path.rfind("execution.", 0) == 0)
        << row.feature;
  }
}

// Without a row, an enum value would be served silently.
TEST(CapabilityTest, EveryEnumValueHasItsRow) {
  std::set<std::string> names;
  for (const Capability& row : CapabilityTable()) names.insert(row.feature);
  for (int i = 0; i <= static_cast<int>(kLastStrategy); ++i) {
    EXPECT_TRUE(names.count("strategy/" + std::string(StrategyName(static_cast<Strategy>(i)))));
  }
  for (int i = 0; i <= static_cast<int>(kLastLayout); ++i) {
    EXPECT_TRUE(names.count("layout/" + std::string(LayoutName(static_cast<Layout>(i)))));
  }
  for (int i = 1; i <= static_cast<int>(DataType::kFp8E4m3); ++i) {
    EXPECT_TRUE(names.count("dtype/" + std::string(DataTypeName(static_cast<DataType>(i)))));
  }
}

// Features that GPUs lack are served features, with the same names and fields.
TEST(CapabilityTest, WhatGpusLackIsRefusedByTheirWorkers) {
  for (const Capability& lacks : CudaLacks()) {
    const auto served = CapabilityTable();
    EXPECT_TRUE(std::any_of(served.begin(), served.end(), [&](const Capability& row) {
      return row.served && row.feature == lacks.feature && row.field_path == lacks.field_path;
    })) << lacks.feature;
    EXPECT_FALSE(lacks.served);
    EXPECT_FALSE(lacks.why_not.empty());
  }
  AttentionSpec spec = PlainSpec();
  EXPECT_TRUE(CheckNotLacking(CudaLacks(), spec, Execution()).ok());
  spec.operation = Operation::kGradients;
  EXPECT_TRUE(CheckNotLacking(CudaLacks(), spec, Execution()).ok());
  spec.operation = Operation::kForward;
  spec.dtype = DataType::kFp32;
  spec.arithmetic = Arithmetic::kBf16x3;
  const absl::Status refused = CheckNotLacking(CudaLacks(), spec, Execution());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DetailOf(refused).reason, "NOT_SERVED");
  EXPECT_EQ(DetailOf(refused).metadata["features"], "arithmetic/bf16x3");
  ASSERT_EQ(DetailOf(refused).fields.size(), 1u);
  EXPECT_EQ(DetailOf(refused).fields[0].field, "spec.arithmetic");
}

TEST(CapabilityTest, FeaturesOfAPlainRequest) {
  const std::vector<std::string> expected = {
      "dtype/fp32", "out-dtype/as-dtype", "out-dtype/fp32", "operation/forward",
      "mask/full",  "strategy/auto",      "layout/auto"};
  EXPECT_EQ(Names(FeaturesOf(PlainSpec(), Execution())), expected);
  EXPECT_TRUE(CheckServed(PlainSpec(), Execution()).ok());
}

void DOutIsWiderThanTheOutput(AttentionSpec* spec, Execution*) {
  spec->operation = Operation::kGradients;
  spec->dtype = DataType::kBf16;
  spec->gradients.d_out_dtype = DataType::kFp32;
}

// Requests that each use exactly one unserved row.
using SetRequest = std::function<void(AttentionSpec*, Execution*)>;
std::map<std::string, SetRequest> UnservedRequests() {
  const auto deterministic = [](Strategy strategy) {
    return [strategy](AttentionSpec* spec, Execution* execution) {
      spec->deterministic = true;
      execution->strategy = strategy;
    };
  };
  const auto shared = [](int32_t kv_heads, bool d_bias) {
    return [=](AttentionSpec* spec, Execution* execution) {
      spec->operation = Operation::kGradients;
      spec->deterministic = true;
      spec->q_heads = 8;
      spec->kv_heads = kv_heads;
      if (d_bias) spec->modifiers.bias.emplace();
      spec->gradients.d_bias = d_bias;
      execution->ulysses_degree = 4;
    };
  };
  const auto partials = [](Strategy strategy, int32_t world, Operation operation, bool fixed) {
    return [=](AttentionSpec* spec, Execution* execution) {
      spec->operation = operation;
      spec->deterministic = fixed;
      *execution = Execution();
      execution->bf16_partials = true;
      execution->strategy = strategy;
      execution->world_size = world;
    };
  };
  const auto bf16x3 = [](DataType dtype, Operation operation) {
    return [=](AttentionSpec* spec, Execution*) {
      spec->dtype = dtype;
      spec->operation = operation;
      spec->arithmetic = Arithmetic::kBf16x3;
    };
  };
  constexpr Operation kForward = Operation::kForward, kGradients = Operation::kGradients;
  return {
      {"dtype/fp8-e4m3", [](AttentionSpec* spec, Execution*) { spec->dtype = DataType::kFp8E4m3; }},
      {"out-dtype/other",
       [](AttentionSpec* spec, Execution*) { spec->out_dtype = DataType::kFp16; }},
      {"arithmetic/bf16x3-of-16-bits", bf16x3(DataType::kBf16, kForward)},
      {"gradients/bf16x3", bf16x3(DataType::kFp32, kGradients)},
      {"gradients/outputs",
       [](AttentionSpec* spec, Execution*) {
         spec->operation = kGradients;
         spec->outputs.max_logit = true;
       }},
      {"gradients/d-out-other", DOutIsWiderThanTheOutput},
      {"deterministic/ring-pass-q", deterministic(Strategy::kRingPassQ)},
      {"deterministic/tree", deterministic(Strategy::kTree)},
      {"deterministic/gradients-of-shared-heads", shared(2, false)},
      {"deterministic/d-bias-of-exchanged-heads", shared(4, true)},
      {"deterministic/d-bias-of-masked-heads",
       [shared](AttentionSpec* spec, Execution* execution) {
         shared(4, true)(spec, execution);
         *execution = Execution();
         spec->masks.resize(2);
         spec->masks[1].causal = true;
         spec->masks[1].query_heads = {3};
       }},
      {"session", [](AttentionSpec* spec, Execution*) { spec->sequences[2].session = "s"; }},
      {"bf16-partials/strategy", partials(Strategy::kUlysses, 0, kForward, false)},
      {"bf16-partials/one-rank", partials(Strategy::kTree, 1, kForward, false)},
      {"bf16-partials/gradients", partials(Strategy::kTree, 2, kGradients, false)},
      {"bf16-partials/deterministic", partials(Strategy::kAuto, 2, kForward, true)},
      {"execution/timeline",
       [](AttentionSpec*, Execution* execution) { execution->timeline = true; }},
  };
}

TEST(CapabilityTest, EveryRowThatIsNotServedIsRefusedInItsOwnWords) {
  std::map<std::string, SetRequest> requests = UnservedRequests();
  for (const Capability& row : CapabilityTable()) {
    if (row.served) continue;
    SCOPED_TRACE(row.feature);
    const auto request = requests.extract(row.feature);
    ASSERT_FALSE(request.empty()) << "no request of this test uses it";
    AttentionSpec spec = PlainSpec();
    Execution execution;
    request.mapped()(&spec, &execution);
    const absl::Status refused = CheckServed(spec, execution);
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    const ErrorDetail detail = DetailOf(refused);
    EXPECT_EQ(detail.reason, "NOT_SERVED");
    EXPECT_EQ(detail.metadata.at("features"), row.feature);
    ASSERT_EQ(detail.fields.size(), 1u);
    const std::string field = absl::StrReplaceAll(row.field_path, {{"[]", "[2]"}});
    EXPECT_EQ(detail.fields[0].field, field);
    EXPECT_EQ(detail.fields[0].description, row.why_not);
    EXPECT_TRUE(absl::StrContains(refused.message(),
                                  absl::StrCat(field, " (", row.feature, "): ", row.why_not)))
        << refused;
  }
  for (const auto& [feature, request] : requests) ADD_FAILURE() << "no row: " << feature;
}

TEST(CapabilityTest, AMaskThatHidesIsNotFull) {
  AttentionSpec spec = PlainSpec();
  spec.masks.resize(1);
  const auto full = [&] {
    const std::vector<std::string> names = Names(FeaturesOf(spec, Execution()));
    return std::count(names.begin(), names.end(), "mask/full") == 1;
  };
  spec.masks[0].prefix = 3;
  spec.masks[0].always_visible = 2;
  EXPECT_TRUE(full());
  spec.masks[0].window_right = 0;
  EXPECT_FALSE(full());
}

TEST(CapabilityTest, ARefusalNamesEveryFeatureWithTheIndexOfItsField) {
  AttentionSpec spec = PlainSpec();
  spec.masks.resize(2);
  spec.masks[0].chunk = 4;  // A served feature.
  spec.sequences[2].session = "s";
  Execution execution;
  execution.bf16_partials = execution.timeline = true;
  execution.strategy = Strategy::kHalo;
  const absl::Status status = CheckServed(spec, execution);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(detail.reason, "NOT_SERVED");
  EXPECT_EQ(detail.metadata.at("features"), "session,bf16-partials/strategy,execution/timeline");
  std::vector<std::string> fields;
  for (const FieldViolation& field : detail.fields) fields.push_back(field.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"spec.sequences[2].session",
                                              "execution.bf16_partials", "execution.timeline"}));
}

TEST(CapabilityTest, PartialsInBf16AreServedWhereTheyTravel) {
  AttentionSpec spec = PlainSpec();
  Execution execution;
  execution.bf16_partials = true;
  const auto refused = [&] {
    const absl::Status status = CheckServed(spec, execution);
    return status.ok() ? std::string() : DetailOf(status).metadata["features"];
  };
  for (int i = 0; i <= static_cast<int>(kLastStrategy); ++i) {
    execution.strategy = static_cast<Strategy>(i);
    const bool may = execution.strategy == Strategy::kAuto || SendsPartials(execution.strategy);
    EXPECT_EQ(refused(), may ? "" : "bf16-partials/strategy") << StrategyName(execution.strategy);
  }
  execution.strategy = Strategy::kTree;
  execution.world_size = 1;
  EXPECT_EQ(refused(), "bf16-partials/one-rank");
  execution.world_size = 0;
  execution.strategy = Strategy::kAuto;
  execution.ring_degree = 1;
  EXPECT_EQ(refused(), "bf16-partials/one-rank");
  const FieldViolation why = DetailOf(CheckServed(spec, execution)).fields.at(0);
  EXPECT_EQ(why.field, "execution.bf16_partials");
  EXPECT_NE(why.description.find("excludes world_size 1 and ring_degree 1"), std::string::npos);
  execution.ring_degree = 0;
  execution.strategy = Strategy::kTree;
  execution.world_size = 2;
  EXPECT_EQ(refused(), "");
  spec.operation = Operation::kGradients;
  EXPECT_EQ(refused(), "bf16-partials/gradients");
  spec.operation = Operation::kForward;
  execution.strategy = Strategy::kAuto;
  spec.deterministic = true;
  EXPECT_EQ(refused(), "bf16-partials/deterministic");
}

TEST(CapabilityTest, DeterministicGradientsAreServedWhereNothingIsAddedUpByRank) {
  AttentionSpec spec = PlainSpec();
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  Execution execution;
  const auto refused_at = [&] {
    const absl::Status status = CheckServed(spec, execution);
    return status.ok() ? std::string() : DetailOf(status).fields.at(0).field;
  };
  for (const Strategy strategy :
       {Strategy::kAuto, Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,
        Strategy::kHalo, Strategy::kDoubleRing, Strategy::kUlysses, Strategy::kUlyssesRing}) {
    execution.strategy = strategy;
    EXPECT_EQ(refused_at(), "") << StrategyName(strategy);
  }
  for (const Strategy strategy : {Strategy::kRingPassQ, Strategy::kTree}) {
    execution.strategy = strategy;
    EXPECT_EQ(refused_at(), "execution.strategy") << StrategyName(strategy);
  }
  execution.strategy = Strategy::kAuto;
  spec.modifiers.bias = Bias();
  spec.gradients.d_bias = true;
  EXPECT_EQ(refused_at(), "");
  spec.q_heads = spec.kv_heads = 2;
  spec.masks.resize(2);
  spec.masks[1].query_heads = {0};
  EXPECT_EQ(refused_at(), "") << "its mask hides what that of the others does";
  spec.masks[1].window_left = 3;
  EXPECT_EQ(refused_at(), "spec.gradients.d_bias");
  spec.masks[1].query_heads = {0, 1};
  EXPECT_EQ(refused_at(), "") << "all heads follow it";
}

TEST(CapabilityTest, DeterministicGradientsNeedADegreeThatDividesTheKeyHeads) {
  AttentionSpec spec = PlainSpec();
  spec.q_heads = 8;
  spec.kv_heads = 4;
  spec.operation = Operation::kGradients;
  spec.deterministic = true;
  const auto refused = [&](Strategy strategy, int32_t world, int32_t degree) {
    Execution execution;
    execution.strategy = strategy;
    execution.world_size = world;
    execution.ulysses_degree = degree;
    const absl::Status status = CheckServed(spec, execution);
    if (status.ok()) return std::string();
    EXPECT_EQ(DetailOf(status).fields.at(0).field, "execution.ulysses_degree");
    return DetailOf(status).metadata.at("features");
  };
  const std::string shared = "deterministic/gradients-of-shared-heads";
  EXPECT_EQ(refused(Strategy::kUlysses, 4, 0), "");
  EXPECT_EQ(refused(Strategy::kUlysses, 8, 0), shared);
  EXPECT_EQ(refused(Strategy::kUlysses, 3, 0), shared);
  EXPECT_EQ(refused(Strategy::kUlysses, 0, 3), shared);
  EXPECT_EQ(refused(Strategy::kAuto, 0, 3), shared);
  EXPECT_EQ(refused(Strategy::kAuto, 3, 0), "");
  EXPECT_EQ(refused(Strategy::kUlyssesRing, 6, 0), "");  // The degrees are 2 × 3.
  EXPECT_EQ(refused(Strategy::kUlyssesRing, 6, 3), shared);
  EXPECT_EQ(refused(Strategy::kUlyssesRing, 9, 0), shared);
  spec.modifiers.bias = Bias();
  spec.gradients.d_bias = true;
  EXPECT_EQ(refused(Strategy::kUlysses, 4, 0), "deterministic/d-bias-of-exchanged-heads");
  EXPECT_EQ(refused(Strategy::kUlysses, 1, 0), "");
  spec.modifiers.bias->heads = 8;
  EXPECT_EQ(refused(Strategy::kUlysses, 4, 0), "");
  spec.deterministic = false;
  EXPECT_EQ(refused(Strategy::kUlysses, 8, 0), "");
}

}  // namespace
}  // namespace annulus
