#include "server/gateway/inline_job.h"

#include <cstring>
#include <limits>

#include "attention/numerics/synthetic.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "proto/wire/crc32c.h"

namespace annulus {
namespace {

AttentionSpec SmallSpec(DataType dtype = DataType::kFp32) {
  AttentionSpec spec;
  spec.dtype = dtype;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 2;
  spec.sequences = {{2, 1, "", 0, 0}};
  return spec;
}

void Fill(std::vector<int64_t> shape, v1::InlineTensor* tensor) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    tensor->add_shape(extent);
    elements *= extent;
  }
  for (int64_t i = 0; i < elements; ++i) tensor->add_values(static_cast<float>(i) + 0.5f);
}

v1::AttendInlineRequest TypedRequest() {
  v1::AttendInlineRequest request;
  Fill({2, 2, 2}, request.mutable_tensors()->mutable_q());
  Fill({1, 1, 2}, request.mutable_tensors()->mutable_k());
  Fill({1, 1, 2}, request.mutable_tensors()->mutable_v());
  return request;
}

std::string FieldOf(const absl::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  return detail.fields.empty() ? "" : detail.fields[0].field;
}

TEST(InlineJobTest, TypedNumbersBecomeBytesInTableOrder) {
  const auto tensors = InlineTensorBytes(TypedRequest(), SmallSpec());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 5u);
  float last;
  std::memcpy(&last, (*tensors)[0].data() + 7 * sizeof(float), sizeof(last));
  EXPECT_EQ(last, 7.5f);
  EXPECT_EQ((*tensors)[3].size(), 2 * 2 * 2 * sizeof(float));
  EXPECT_EQ((*tensors)[4].size(), 2 * 2 * sizeof(float));
}

TEST(InlineJobTest, AShapeThatDisagreesIsNamed) {
  v1::AttendInlineRequest request = TypedRequest();
  request.mutable_tensors()->mutable_k()->set_shape(0, 3);
  const absl::Status status = InlineTensorBytes(request, SmallSpec()).status();
  EXPECT_EQ(DetailOf(status).reason, "SHAPE_MISMATCH");
  EXPECT_EQ(FieldOf(status), "tensors.k.shape");
}

TEST(InlineJobTest, TooFewNumbersAreNamed) {
  v1::AttendInlineRequest request = TypedRequest();
  request.mutable_tensors()->mutable_v()->mutable_values()->RemoveLast();
  const absl::Status status = InlineTensorBytes(request, SmallSpec()).status();
  EXPECT_EQ(DetailOf(status).reason, "TENSOR_BYTES_MISMATCH");
  EXPECT_EQ(FieldOf(status), "tensors.v.values");
}

TEST(InlineJobTest, UnknownFieldsOfInputsAreNamed) {
  const std::string unknown = "\x98\x06\x01";  // Field 99.
  const auto field = [](const v1::AttendInlineRequest& request) {
    const absl::Status status = InlineTensorBytes(request, SmallSpec()).status();
    EXPECT_EQ(DetailOf(status).reason, "UNKNOWN_FIELD");
    return FieldOf(status);
  };
  v1::AttendInlineRequest request = TypedRequest();
  ASSERT_TRUE(request.mutable_tensors()->mutable_k()->MergeFromString(unknown));
  EXPECT_EQ(field(request), "tensors.k.99");
  ASSERT_TRUE(request.mutable_tensors()->MergeFromString(unknown));
  EXPECT_EQ(field(request), "tensors.99");
  ASSERT_TRUE(request.mutable_synthetic()->MergeFromString(unknown));
  EXPECT_EQ(field(request), "synthetic.99");
}

TEST(InlineJobTest, ABiasThatItsTypeDoesNotHoldIsNoMask) {
  AttentionSpec spec = SmallSpec();
  spec.modifiers.bias = Bias{DataType::kFp16, 1};
  v1::AttendInlineRequest request = TypedRequest();
  Fill({2, 1, 1}, request.mutable_tensors()->mutable_bias());
  request.mutable_tensors()->mutable_bias()->set_values(1, -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(InlineTensorBytes(request, spec).ok());
  request.mutable_tensors()->mutable_bias()->set_values(1, -1e9f);
  const absl::Status status = InlineTensorBytes(request, spec).status();
  EXPECT_EQ(DetailOf(status).reason, "INVALID_MODIFIER");
  EXPECT_EQ(FieldOf(status), "tensors.bias.values");
}

TEST(InlineJobTest, NeitherNumbersNorSeedIsRefusedBeforeAnythingIsAllocated) {
  EXPECT_EQ(DetailOf(InlineBytes({}, SmallSpec()).status()).reason, "MISSING_TENSOR");
}

TEST(InlineJobTest, ALargeJobIsSentToAttend) {
  AttentionSpec spec = SmallSpec();
  spec.sequences[0].q_len = int64_t{1} << 26;
  v1::AttendInlineRequest request;
  request.mutable_synthetic()->set_seed(1);
  EXPECT_EQ(DetailOf(InlineBytes(request, spec).status()).reason, "LIMIT_EXCEEDED");
  const auto held = static_cast<int64_t>(request.SpaceUsedLong());
  EXPECT_EQ(*InlineBytes(request, SmallSpec()), 8 * 4 + 2 * 4 + 2 * 4 + 8 * 4 + 4 * 4 + held);
}

// Few numbers in, many out.
TEST(InlineJobTest, ALargeAnswerIsSentToAttend) {
  AttentionSpec spec = SmallSpec();
  spec.q_heads = 1;
  spec.head_dim = 1;
  spec.head_dim_v = 255;
  spec.sequences[0].q_len = kMaxInlineAnswerElements / 256;  // Plus an LSE for each row.
  EXPECT_TRUE(InlineBytes(TypedRequest(), spec).ok());
  ++spec.sequences[0].q_len;
  const absl::Status status = InlineBytes(TypedRequest(), spec).status();
  EXPECT_EQ(DetailOf(status).reason, "LIMIT_EXCEEDED");
  EXPECT_EQ(FieldOf(status), "spec.sequences");
  v1::AttendInlineRequest by_seed;
  by_seed.mutable_synthetic()->set_seed(1);
  EXPECT_TRUE(InlineBytes(by_seed, spec).ok()) << "answered with digests";
}

TEST(InlineJobTest, GradientsAreForAttend) {
  AttentionSpec spec = SmallSpec();
  spec.operation = Operation::kGradients;
  const ErrorDetail detail = DetailOf(InlineBytes(TypedRequest(), spec).status());
  EXPECT_EQ(detail.reason, "NOT_SERVED");
  EXPECT_EQ(detail.fields.at(0).field, "spec.gradients");
}

TEST(InlineJobTest, ASeedFillsEveryInput) {
  v1::AttendInlineRequest request;
  request.mutable_synthetic()->set_seed(42);
  const auto tensors = InlineTensorBytes(request, SmallSpec());
  ASSERT_TRUE(tensors.ok());
  float value;
  std::memcpy(&value, (*tensors)[2].data() + sizeof(float), sizeof(value));
  EXPECT_EQ(value, SyntheticValue(42, TensorId::kV, 0, 0, 1));
}

TEST(InlineJobTest, TheLargestScoreIsThereWhereItIsAskedFor) {
  AttentionSpec spec = SmallSpec();
  v1::AttendInlineResponse response;
  FillInlineResponse(TypedRequest(), spec, *InlineTensorBytes(TypedRequest(), spec), &response);
  EXPECT_FALSE(response.has_max_logit() || response.has_max_logit_crc32c());
  spec.outputs.max_logit = true;
  auto tensors = InlineTensorBytes(TypedRequest(), spec);
  const float largest = -3.5f;
  std::memcpy((*tensors)[5].data(), &largest, sizeof(largest));
  FillInlineResponse(TypedRequest(), spec, *tensors, &response);
  EXPECT_EQ(response.max_logit().values(0), -3.5f);
  EXPECT_EQ(response.max_logit_crc32c(), Crc32c((*tensors)[5].data(), (*tensors)[5].size()));
}

TEST(InlineJobTest, TheAnswerHoldsNumbersAndDigests) {
  const AttentionSpec spec = SmallSpec(DataType::kBf16);
  auto tensors = InlineTensorBytes(TypedRequest(), spec);
  ASSERT_TRUE(tensors.ok());
  const uint16_t half = 0x3f00;  // 0.5 in bf16.
  std::memcpy((*tensors)[3].data(), &half, sizeof(half));
  v1::AttendInlineResponse response;
  FillInlineResponse(TypedRequest(), spec, *tensors, &response);
  ASSERT_EQ(response.out().values_size(), 8);
  EXPECT_EQ(response.out().values(0), 0.5f);
  EXPECT_EQ(response.lse().shape(0), 2);
  EXPECT_EQ(response.lse().shape(2), 1);
  EXPECT_EQ(response.out_crc32c(), Crc32c((*tensors)[3].data(), (*tensors)[3].size()));

  v1::AttendInlineRequest by_seed;
  by_seed.mutable_synthetic();
  v1::AttendInlineResponse digest_only;
  FillInlineResponse(by_seed, spec, *tensors, &digest_only);
  EXPECT_FALSE(digest_only.has_out());
  EXPECT_EQ(digest_only.lse_crc32c(), response.lse_crc32c());
}

}  // namespace
}  // namespace annulus
