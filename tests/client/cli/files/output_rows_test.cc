#include "client/cli/files/output_rows.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/cli/verify/small_gradients.h"

namespace annulus {
namespace {

AttentionSpec WithDropout(DataType dtype) {
  AttentionSpec spec = SmallModifiedGradients(dtype);
  spec.gradients.d_lse = true;
  return spec;
}

// Inputs with the output of the reference, which shares no code with the check.
class Inputs {
 public:
  explicit Inputs(const AttentionSpec& spec) : memory_(SmallInputs(spec)) {}

  absl::Status Check(const AttentionSpec& spec, int64_t count = 1000,
                     bool bf16_partials = false) const {
    std::map<TensorId, const std::byte*> tensors;
    for (const auto& [id, bytes] : memory_) tensors[id] = bytes.data();
    return CheckOutputOfRows(spec, tensors, count, 5, bf16_partials);
  }

  // Adds to an element of an fp32 output.
  void Add(size_t cell, float more) {
    float value = 0;
    std::byte* const at = memory_.at(TensorId::kOut).data() + cell * sizeof(value);
    std::memcpy(&value, at, sizeof(value));
    value += more;
    std::memcpy(at, &value, sizeof(value));
  }
  void Swap(TensorId id, const Inputs& other) { memory_[id] = other.memory_.at(id); }

 private:
  std::map<TensorId, std::vector<std::byte>> memory_;
};

TEST(OutputRowsTest, TheOutputOfTheSameJobPasses) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    AttentionSpec wide = SmallGradients(dtype);
    wide.out_dtype = DataType::kFp32;
    for (const AttentionSpec& spec : {SmallGradients(dtype), WithDropout(dtype), wide}) {
      for (const int64_t rows : {2, 1000}) {
        EXPECT_EQ(Inputs(spec).Check(spec, rows), absl::OkStatus()) << DataTypeName(dtype);
      }
    }
  }
}

TEST(OutputRowsTest, AnotherDropoutThanThatOfTheForwardJobShows) {
  for (const DataType dtype : {DataType::kFp32, DataType::kFp16, DataType::kBf16}) {
    const AttentionSpec spec = WithDropout(dtype);
    const Inputs inputs(spec);
    AttentionSpec none = spec, other_seed = spec, other_rate = spec;
    none.dropout.reset();
    other_seed.dropout->seed = 8;
    other_rate.dropout->rate = 0.3;
    for (const AttentionSpec& other : {none, other_seed, other_rate}) {
      const absl::Status status = inputs.Check(other);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(DetailOf(status).reason, "OUTPUT_MISMATCH");
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("does not match these inputs"));
      EXPECT_FALSE(inputs.Check(other, 1000, /*bf16_partials=*/true).ok());
      EXPECT_FALSE(inputs.Check(other, 20).ok());
    }
  }
}

TEST(OutputRowsTest, AnotherFilesOutputShows) {
  const AttentionSpec spec = SmallGradients(DataType::kBf16);
  AttentionSpec full = spec;
  full.masks.clear();
  Inputs inputs(spec);
  inputs.Swap(TensorId::kOut, Inputs(full));
  const absl::Status status = inputs.Check(spec);
  EXPECT_EQ(DetailOf(status).reason, "OUTPUT_MISMATCH");
  EXPECT_EQ(DetailOf(status).metadata.count("head"), 1u);
}

TEST(OutputRowsTest, OfFp32TheForwardJobMayHaveMultipliedInParts) {
  const AttentionSpec spec = SmallGradients(DataType::kFp32);
  Inputs inputs(spec);
  inputs.Add(7, 1e-5f);
  EXPECT_EQ(inputs.Check(spec), absl::OkStatus());
  inputs.Add(7, 3e-4f);
  EXPECT_FALSE(inputs.Check(spec).ok());
}

TEST(OutputRowsTest, PartialsInBf16AreAllowedMore) {
  const AttentionSpec spec = SmallGradients(DataType::kFp32);
  Inputs inputs(spec);
  const size_t row_of_head_2 = (7 * 4 + 2) * 8;
  inputs.Add(row_of_head_2, 1e-3f);
  const absl::Status status = inputs.Check(spec);
  EXPECT_EQ(DetailOf(status).reason, "OUTPUT_MISMATCH");
  EXPECT_EQ(DetailOf(status).metadata["head"], "2");
  EXPECT_EQ(inputs.Check(spec, 1000, /*bf16_partials=*/true), absl::OkStatus());
  inputs.Add(row_of_head_2, 1e-1f);
  EXPECT_FALSE(inputs.Check(spec, 1000, /*bf16_partials=*/true).ok());
}

}  // namespace
}  // namespace annulus
