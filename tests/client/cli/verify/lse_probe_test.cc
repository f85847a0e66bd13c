#include "client/cli/verify/lse_probe.h"

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

constexpr float kInf = std::numeric_limits<float>::infinity();

using Memory = std::map<TensorId, std::vector<std::byte>>;

absl::Status Check(const AttentionSpec& spec, const Memory& memory) {
  std::map<TensorId, const std::byte*> tensors;
  for (const auto& [id, bytes] : memory) tensors[id] = bytes.data();
  return CheckLseOfFew(spec, tensors);
}

// Changes each LSE by a rule. The reference, which shares no code with the check, uses base e.
template <typename Rule>
Memory Changed(Memory memory, const Rule& rule) {
  std::vector<std::byte>& lse = memory.at(TensorId::kLse);
  for (size_t i = 0; i < lse.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &lse[i], sizeof(value));
    value = rule(value);
    std::memcpy(&lse[i], &value, sizeof(value));
  }
  return memory;
}

float InBase2(float lse) { return lse / std::log(2.0f); }

std::vector<AttentionSpec> Specs() {
  std::vector<AttentionSpec> specs;
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    specs.push_back(SmallGradients(dtype));
    specs.push_back(SmallModifiedGradients(dtype));
    specs.back().modifiers.alibi_slopes = {0.5, 0.25, 0.125, 0.0625};
  }
  return specs;
}

TEST(LseProbeTest, ALseOfBaseEPassesAndOneOfBase2IsTold) {
  for (const AttentionSpec& spec : Specs()) {
    const Memory memory = SmallInputs(spec);
    EXPECT_EQ(Check(spec, memory), absl::OkStatus());
    const absl::Status status = Check(spec, Changed(memory, InBase2));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailOf(status).reason, "LSE_MISMATCH");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("does not match these inputs: its weights sum"));
  }
}

TEST(LseProbeTest, AForgottenMaskIsTold) {
  AttentionSpec spec = SmallGradients(DataType::kBf16);
  const Memory memory = SmallInputs(spec);
  spec.masks.clear();
  EXPECT_EQ(DetailOf(Check(spec, memory)).reason, "LSE_MISMATCH");
}

TEST(LseProbeTest, WhatAnotherArithmeticIsOffPasses) {
  const AttentionSpec spec = SmallGradients(DataType::kFp32);
  const Memory memory = SmallInputs(spec);
  const auto off_by = [&](float part) {
    return Check(spec, Changed(memory, [part](float lse) { return lse + part; }));
  };
  EXPECT_EQ(off_by(0.03f), absl::OkStatus());
  EXPECT_EQ(off_by(-0.03f), absl::OkStatus());
  EXPECT_FALSE(off_by(0.3f).ok());
  EXPECT_FALSE(off_by(-0.3f).ok());
}

TEST(LseProbeTest, WhatIsOutOfRangeIsPassedOver) {
  const AttentionSpec spec = SmallGradients(DataType::kFp32);
  const Memory memory = SmallInputs(spec);
  for (const float value : {kInf, std::nanf("")}) {
    EXPECT_EQ(Check(spec, Changed(memory, [value](float) { return value; })), absl::OkStatus());
  }
}

// One row of one head, over more keys than the work limit.
TEST(LseProbeTest, OneRowIsLookedAtHoweverManyKeysItHas) {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.dtype = DataType::kBf16;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = spec.head_dim_v = 256;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = 1;
  spec.sequences[0].kv_len = (1 << 18) + 7;  // 2^26 products and more.
  Memory memory;
  for (const TensorInfo& tensor : TensorTable(spec)) {
    const size_t bytes = static_cast<size_t>(RowsOf(tensor, spec) * tensor.row_bytes());
    if (tensor.direction == Direction::kInput) memory[tensor.id].resize(bytes);
  }
  const auto lse = static_cast<float>(std::log(static_cast<double>(spec.kv_rows())));
  EXPECT_EQ(Check(spec, Changed(memory, [lse](float) { return lse; })), absl::OkStatus());
  EXPECT_FALSE(Check(spec, Changed(memory, [lse](float) { return InBase2(lse); })).ok());
}

TEST(LseProbeTest, AJobWithoutRowsHasNothingToLookAt) {
  AttentionSpec spec = SmallGradients(DataType::kFp32);
  for (Sequence& sequence : spec.sequences) sequence.q_len = 0;
  EXPECT_EQ(Check(spec, SmallInputs(spec)), absl::OkStatus());
}

}  // namespace
}  // namespace annulus
