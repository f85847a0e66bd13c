#include "client/cli/files/bias_and_mask_files.h"

#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/files/attend_job.h"
#include "client/cli/files/spec_json.h"
#include "client/cli/safetensors/safetensors.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// The spec completed from a file with a mask and `q_heads` query heads.
v1::AttentionSpec Taken(const std::string& spec, int64_t q_heads) {
  const std::string path = testing::TempDir() + "/pairs.safetensors";
  EXPECT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"q", "F32", {0, q_heads, 8}, {}}, {"mask", "U8", {0, 5}, {}}})
                  .ok());
  v1::AttentionSpec taken = *ParseSpec(spec, "spec.json");
  EXPECT_TRUE(TakeBiasAndMaskInputs(*SafetensorsFile::Open(path), &taken).ok());
  return taken;
}

std::vector<int32_t> HeadsOf(const v1::Mask& mask) {
  return {mask.query_heads().begin(), mask.query_heads().end()};
}

TEST(PairFilesTest, EveryHeadHasAMaskWithTheBitMask) {
  for (const char* spec :
       {"{}", R"({"masks": [{"causal": true}]})", R"({"masks": [{"queryHeads": [0, 2, 1]}]})",
        R"({"masks": [{"causal": true}, {"queryHeads": [1]}]})"}) {
    const v1::AttentionSpec taken = Taken(spec, 3);
    const int given = ParseSpec(spec, "spec.json")->masks_size();
    EXPECT_EQ(taken.masks_size(), given == 0 ? 1 : given) << spec;
    for (const v1::Mask& mask : taken.masks()) EXPECT_TRUE(mask.bit_mask()) << spec;
  }
}

TEST(PairFilesTest, HeadsThatTheFirstGroupNamesNotGetOneAtItsEnd) {
  const v1::AttentionSpec taken = Taken(
      R"({"masks": [{"queryHeads": [3]}, {"causal": true, "queryHeads": [0]}, {"prefix": "2"},
                    {"chunk": "4", "queryHeads": [1]}, {"causal": true}],
          "sequences": [{"mask": 0}, {"mask": 2}, {"mask": 4}]})",
      5);
  ASSERT_EQ(taken.masks_size(), 6);
  for (const v1::Mask& mask : taken.masks()) EXPECT_TRUE(mask.bit_mask());
  EXPECT_EQ(HeadsOf(taken.masks(0)), (std::vector<int32_t>{3}));
  EXPECT_TRUE(taken.masks(1).causal());
  EXPECT_EQ(HeadsOf(taken.masks(2)), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_FALSE(taken.masks(2).causal());
  EXPECT_EQ(taken.masks(3).prefix(), 2);
  EXPECT_EQ(taken.masks(4).chunk(), 4);
  EXPECT_TRUE(taken.masks(5).causal());
  EXPECT_EQ(taken.sequences(0).mask(), 0);
  EXPECT_EQ(taken.sequences(1).mask(), 3);
  EXPECT_EQ(taken.sequences(2).mask(), 5);
}

TEST(PairFilesTest, ASpecThatSaysWhoHasTheBitMaskStays) {
  const v1::AttentionSpec taken = Taken(R"({"masks": [{"bitMask": true, "queryHeads": [1]}]})", 4);
  EXPECT_EQ(taken.masks_size(), 1);
}

TEST(PairFilesTest, AFileOfAnyNumberOfHeadsIsTakenAtOnce) {
  const int64_t heads = std::numeric_limits<int64_t>::max() / 64;
  EXPECT_EQ(Taken(R"({"masks": [{"queryHeads": [1]}]})", heads).masks_size(), 1);
}

TEST(PairFilesTest, LeadingExtentsMayBeAbsent) {
  const TensorInfo tensor{TensorId::kBias, RowSpace::kQuery, Direction::kInput, 2, 3,
                          DataType::kFp32};
  const std::vector<float> keys = {1, 2, 3};
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(keys.data()), 12);
  const std::string path = testing::TempDir() + "/leading.safetensors";
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3}, {1, 3}, {1, 1, 3}, {1, 1, 1, 3}}) {
    ASSERT_TRUE(SafetensorsWriter::Create(path)->Commit({{"bias", "F32", shape, bytes}}).ok());
    const SafetensorsFile file = *SafetensorsFile::Open(path);
    std::vector<float> rows(2 * 2 * 2 * 3);  // Rows of 2 sequences of 2 rows.
    const absl::Status status =
        ReadBiasOrMaskInput(file, tensor, {2, 2, 3}, reinterpret_cast<std::byte*>(rows.data()));
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], keys[i % 3]);
  }
}

// Two rows of one number. If it were rounded to fp32 first, the sum would be half-way between two
// 16-bit numbers.
TEST(PairFilesTest, AGradientOfABiasIsRoundedOnce) {
  const TensorInfo tensor{TensorId::kDBias, RowSpace::kQuery, Direction::kOutput, 1, 1,
                          DataType::kFp32};
  const PairExtents extents{std::nullopt, 2, 1};
  const auto sum = [&](float a, float b, DataType dtype) {
    const float rows[2] = {a, b};
    const FileTensor made = BiasGradientForFile({1, 1, 1}, dtype, tensor, extents,
                                                reinterpret_cast<const std::byte*>(rows));
    uint16_t bits = 0;
    EXPECT_EQ(made.bytes.size(), sizeof(bits));
    std::memcpy(&bits, made.bytes.data(), sizeof(bits));
    return bits;
  };
  for (const float sign : {1.0f, -1.0f}) {
    const uint16_t minus = sign < 0 ? 0x8000 : 0;
    EXPECT_EQ(sum(sign * (1 + 0x1p-8f), sign * 0x1p-33f, DataType::kBf16), 0x3f81 | minus);
    EXPECT_EQ(sum(sign * (1 + 3 * 0x1p-8f), -sign * 0x1p-33f, DataType::kBf16), 0x3f81 | minus);
    EXPECT_EQ(sum(sign * (1 + 0x1p-8f), 0, DataType::kBf16), 0x3f80 | minus);  // A tie.
    EXPECT_EQ(sum(sign * (1 + 0x1p-11f), sign * 0x1p-33f, DataType::kFp16), 0x3c01 | minus);
  }
}

}  // namespace
}  // namespace annulus
