#include "client/cli/verify/lse_rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cli/verify/small_gradients.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

AttentionSpec WithModifiers(DataType dtype) {
  AttentionSpec spec = SmallModifiedGradients(dtype);
  spec.modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  return spec;
}

// Inputs with the LSE of the reference, which shares no code with the check.
class Inputs {
 public:
  explicit Inputs(const AttentionSpec& spec) : memory_(SmallInputs(spec)) {}

  absl::Status Check(const AttentionSpec& spec, int64_t count = 1000) const {
    std::map<TensorId, const std::byte*> tensors;
    for (const auto& [id, bytes] : memory_) tensors[id] = bytes.data();
    return CheckLseOfRows(spec, tensors, count, 5);
  }

  float Lse(size_t cell) const {
    float lse = 0;
    std::memcpy(&lse, memory_.at(TensorId::kLse).data() + cell * sizeof(lse), sizeof(lse));
    return lse;
  }
  void SetLse(size_t cell, float lse) {
    std::memcpy(memory_.at(TensorId::kLse).data() + cell * sizeof(lse), &lse, sizeof(lse));
  }

 private:
  std::map<TensorId, std::vector<std::byte>> memory_;
};

TEST(LseRowsTest, TheLseOfTheSameJobPasses) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    for (const AttentionSpec& spec : {SmallGradients(dtype), WithModifiers(dtype)}) {
      EXPECT_EQ(Inputs(spec).Check(spec), absl::OkStatus());
    }
  }
}

TEST(LseRowsTest, AForgottenMaskIsToldByRowAndHead) {
  AttentionSpec spec = SmallGradients(DataType::kBf16);
  const Inputs inputs(spec);
  spec.masks.clear();
  const absl::Status status = inputs.Check(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status).reason, "LSE_MISMATCH");
  EXPECT_EQ(DetailOf(status).metadata.at("row"), "0");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the lse of row 0, head 0 does not match these"));
  EXPECT_FALSE(inputs.Check(spec, 3).ok());
}

TEST(LseRowsTest, EverythingThatDecidesAnLseIsSeen) {
  const AttentionSpec spec = WithModifiers(DataType::kFp32);
  const Inputs inputs(spec);
  const std::vector<void (*)(AttentionSpec*)> changes = {
      [](AttentionSpec* s) { s->scale = 0.5; },
      [](AttentionSpec* s) { s->modifiers.soft_cap = 2.1; },
      [](AttentionSpec* s) { s->modifiers.alibi_slopes[3] = 0; },
      [](AttentionSpec* s) { s->modifiers.sinks[2] = 0.01; },
      [](AttentionSpec* s) { s->modifiers.sinks.clear(); },
      [](AttentionSpec* s) { s->modifiers.lse_offset = false; },
      [](AttentionSpec* s) { s->masks[0].bit_mask = false; },
      [](AttentionSpec* s) { s->masks[0].window_left = 30; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    AttentionSpec changed = spec;
    changes[i](&changed);
    EXPECT_EQ(DetailOf(inputs.Check(changed)).reason, "LSE_MISMATCH") << i;
  }
  AttentionSpec seed = spec;
  seed.dropout->seed = 8;  // After the LSE was computed.
  EXPECT_EQ(inputs.Check(seed), absl::OkStatus());
}

TEST(LseRowsTest, OneRowMayBeOffByTwiceItsBudget) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const AttentionSpec spec = SmallGradients(DataType::kFp16);
  const size_t cell = 7 * 4 + 2, sees_nothing = 30 * 4;
  Inputs inputs(spec);
  const float lse = inputs.Lse(cell), allowed = 2e-3f * std::max(1.0f, lse);
  ASSERT_EQ(inputs.Lse(sees_nothing), -kInf);
  for (const auto& [at, value, passes] :
       {std::tuple(cell, lse + 0.9f * allowed, true), std::tuple(cell, lse - 0.9f * allowed, true),
        std::tuple(cell, lse + 1.1f * allowed, false),
        std::tuple(cell, lse - 1.1f * allowed, false), std::tuple(cell, -kInf, false),
        std::tuple(cell, kInf, true), std::tuple(cell, std::nanf(""), true),
        std::tuple(sees_nothing, 3.0f, false)}) {
    Inputs changed(spec);
    changed.SetLse(at, value);
    EXPECT_EQ(changed.Check(spec).ok(), passes) << at << ": " << value;
  }
}

}  // namespace
}  // namespace annulus
