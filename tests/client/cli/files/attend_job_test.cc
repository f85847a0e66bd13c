#include "client/cli/files/attend_job.h"

#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "attention/numerics/synthetic.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "base/error.h"
#include "client/cli/files/output_bytes.h"
#include "client/cli/files/spec_json.h"
#include "client/cli/safetensors/safetensor_types.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

std::string Reason(const absl::Status& status) {
  return status.ok() ? "OK" : DetailOf(status).reason;
}

absl::StatusOr<AttentionSpec> Complete(const std::string& json, const std::string& shape) {
  absl::StatusOr<v1::AttentionSpec> spec = ParseSpec(json, "spec.json");
  if (!spec.ok()) return spec.status();
  return CompleteSpec(*spec, ParseSynthetic(shape)->shape);
}

TEST(AttendJobTest, SyntheticShapesAreRead) {
  const absl::StatusOr<SyntheticShape> shape =
      ParseSynthetic("2,5,7,8,4,16,32,bf16,18446744073709551615");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->shape.batch, 2);
  EXPECT_EQ(shape->shape.q_tokens, 5);
  EXPECT_EQ(shape->shape.kv_tokens, 7);
  EXPECT_EQ(shape->shape.q_heads, 8);
  EXPECT_EQ(shape->shape.kv_heads, 4);
  EXPECT_EQ(shape->shape.head_dim, 16);
  EXPECT_EQ(shape->shape.head_dim_v, 32);
  EXPECT_EQ(shape->shape.dtype, DataType::kBf16);
  EXPECT_EQ(shape->seed, ~uint64_t{0});
  EXPECT_EQ(ParseSynthetic("1,4,4,2,2,8,fp32,1")->shape.head_dim_v, 8);
  for (const char* bad :
       {"", "1,2,3", "1,4,4,2,2,8,fp64,1", "1,4,4,2,2,8,fp32,-1", "1,-4,4,2,2,8,fp32,1",
        "1,x,4,2,2,8,fp32,1", "1,4,4,2,2,8,8,8,fp32,1", "99999999999999999999,4,4,2,2,8,fp32,1"}) {
    EXPECT_EQ(Reason(ParseSynthetic(bad).status()), "BAD_SYNTHETIC") << bad;
  }
}

TEST(AttendJobTest, ASpecIsCompletedAndMustAgree) {
  const char* const shape = "2,5,7,8,4,16,fp16,1";
  const absl::StatusOr<AttentionSpec> spec = Complete("{\"masks\":[{\"causal\":true}]}", shape);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->dtype, DataType::kFp16);
  ASSERT_EQ(spec->sequences.size(), 2u);
  EXPECT_EQ(spec->sequences[1].q_len, 5);
  EXPECT_EQ(spec->sequences[1].kv_len, 7);
  EXPECT_TRUE(spec->masks.at(0).causal);
  EXPECT_TRUE(
      Complete("{\"qHeads\":8,\"head_dim_v\":16,\"dtype\":\"DATA_TYPE_FP16\"}", shape).ok());
  EXPECT_EQ(Reason(Complete("{\"qHeads\":4}", shape).status()), "SHAPE_MISMATCH");
  EXPECT_EQ(Reason(Complete("{\"dtype\":\"DATA_TYPE_BF16\"}", shape).status()), "SHAPE_MISMATCH");
  EXPECT_EQ(Reason(Complete("{\"sequences\":[{\"qLen\":5,\"kvLen\":7}]}", shape).status()),
            "SHAPE_MISMATCH");
  EXPECT_EQ(Reason(Complete("{\"qheads\":4}", shape).status()), "BAD_SPEC");
  EXPECT_EQ(Reason(Complete("{", shape).status()), "BAD_SPEC");
  EXPECT_EQ(Reason(Complete("{\"dtype\":\"FP32\"}", shape).status()), "BAD_SPEC");
}

TEST(AttendJobTest, PackedSequencesComeFromTheSpec) {
  JobShape shape = ParseSynthetic("1,12,9,2,2,8,fp32,1")->shape;
  shape.batch.reset();
  const auto complete = [&](const std::string& json) {
    return CompleteSpec(*ParseSpec(json, "spec.json"), shape);
  };
  const absl::StatusOr<AttentionSpec> spec =
      complete("{\"sequences\":[{\"qLen\":10,\"kvLen\":4},{\"qLen\":2,\"kvLen\":5}]}");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sequences.size(), 2u);
  EXPECT_EQ(Reason(complete("{\"sequences\":[{\"qLen\":10,\"kvLen\":9}]}").status()),
            "SHAPE_MISMATCH");
  EXPECT_FALSE(complete("{\"sequences\":[{\"qLen\":\"9223372036854775807\",\"kvLen\":9},"
                        "{\"qLen\":\"9223372036854775807\"}]}")
                   .ok());
}

// Writes q, k, v of the given shapes and requests the job's shape.
std::string ReasonOfFile(const std::vector<std::vector<int64_t>>& shapes,
                         const std::string& v_dtype = "F32") {
  const std::string path = testing::TempDir() + "/shapes.safetensors";
  std::vector<std::vector<std::byte>> memory;
  std::vector<SafetensorView> views;
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t bytes = 4;
    for (int64_t dim : shapes[i]) bytes *= dim;
    memory.emplace_back(bytes);
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    views.push_back({std::string(1, "qkv"[i]), i == 2 ? v_dtype : "F32", shapes[i], memory[i]});
  }
  EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit(views).ok());
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  return file.ok() ? Reason(ShapeOf(*file).status()) : Reason(file.status());
}

TEST(AttendJobTest, FilesMustHoldAJob) {
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 8}, {5, 1, 6}}), "OK");
  EXPECT_EQ(ReasonOfFile({{3, 4, 2, 8}, {3, 5, 1, 8}, {3, 5, 1, 6}}), "OK");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 8}}), "MISSING_TENSOR");
  EXPECT_EQ(ReasonOfFile({{4, 2}, {5, 1, 8}, {5, 1, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {1, 5, 1, 8}, {5, 1, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 7}, {5, 1, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 8}, {6, 1, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 8}, {5, 2, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{3, 4, 2, 8}, {2, 5, 1, 8}, {3, 5, 1, 8}}), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOfFile({{4, 2, 8}, {5, 1, 8}, {5, 1, 8}}, "I32"), "UNSUPPORTED_DTYPE");
}

// The error of ShapeOf for q, k and v without data.
std::string ToldOf(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  const std::string path = testing::TempDir() + "/told.safetensors";
  const std::vector<std::byte> bytes(1 << 16);
  std::vector<SafetensorView> views;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [dtype, shape] = tensors[i];
    size_t size = static_cast<size_t>(SafetensorElementBytes(dtype));
    for (const int64_t extent : shape) size *= static_cast<size_t>(extent);
    views.push_back({std::string(1, "qkv"[i]), dtype, shape, {bytes.data(), size}});
  }
  EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit(views).ok());
  return std::string(ShapeOf(*SafetensorsFile::Open(path)).status().message());
}

TEST(AttendJobTest, WhatDoesNotFitIsToldWithWhatItIs) {
  EXPECT_EQ(ToldOf({{"F32", {4, 2, 8}}, {"F16", {5, 1, 8}}, {"F32", {5, 1, 8}}}),
            "k: is F16, but q is F32");
  EXPECT_EQ(ToldOf({{"F32", {4, 2, 8}}, {"F32", {5, 1, 8}}, {"F32", {6, 1, 8}}}),
            "v: has another number of tokens than k: v [6, 1, 8], k [5, 1, 8]");
  EXPECT_EQ(ToldOf({{"F32", {4, 2, 8}}, {"F32", {1, 5, 1, 8}}, {"F32", {6, 1, 8}}}),
            "k: has another number of dimensions than q: k [1, 5, 1, 8], q [4, 2, 8]");
  EXPECT_EQ(ToldOf({{"F32", {4, 8}}, {"F32", {5, 1, 8}}, {"F32", {5, 1, 8}}}),
            "q: has shape [4, 8], but must be [tokens, heads, dim] or [batch, tokens, heads, dim]");
  EXPECT_EQ(ToldOf({{"F32", {4, 2, 8}}, {"F32", {5, 1, 8}}}),
            "v: is not in the file, which has q, k");
}

TEST(AttendJobTest, OutputsAreWrittenInTheShapeOfTheInput) {
  const SyntheticShape shape = *ParseSynthetic("2,3,4,2,1,8,6,fp32,5");
  v1::AttentionSpec given;
  given.mutable_outputs()->set_max_logit(true);
  AttendJob job = *AttendJob::Synthetic(*CompleteSpec(given, shape.shape), shape);
  AttendArguments arguments;
  job.FillArguments(&arguments);
  EXPECT_EQ(arguments.inputs.at(TensorId::kK).size(), 2 * 4 * 1 * 8 * sizeof(float));
  float value = 0;
  std::memcpy(&value, arguments.inputs.at(TensorId::kK).data() + 8 * sizeof(float), sizeof(value));
  EXPECT_EQ(value, SyntheticValue(5, TensorId::kK, 1, 0, 0));
  auto* lse = reinterpret_cast<float*>(arguments.outputs.at(TensorId::kLse).data());
  for (int row = 0; row < 6; ++row) {
    for (int head = 0; head < 2; ++head) lse[row * 2 + head] = static_cast<float>(row * 10 + head);
  }
  auto* largest = reinterpret_cast<float*>(arguments.outputs.at(TensorId::kMaxLogit).data());
  for (int cell = 0; cell < 12; ++cell) largest[cell] = -lse[cell];
  const std::string path = testing::TempDir() + "/out.safetensors";
  SafetensorsWriter writer = *SafetensorsWriter::Create(path);
  ASSERT_TRUE(job.WriteOutputs(&writer).ok());
  const SafetensorsFile file = *SafetensorsFile::Open(path);
  EXPECT_EQ(file.Find("output")->shape, (std::vector<int64_t>{2, 3, 2, 6}));
  ASSERT_EQ(file.Find("lse")->shape, (std::vector<int64_t>{2, 2, 3}));
  const auto* written = reinterpret_cast<const float*>(file.Bytes(*file.Find("lse")).data());
  ASSERT_EQ(file.Find("max_logit")->shape, (std::vector<int64_t>{2, 2, 3}));
  const auto* max_logit =
      reinterpret_cast<const float*>(file.Bytes(*file.Find("max_logit")).data());
  for (int b = 0; b < 2; ++b) {
    for (int head = 0; head < 2; ++head) {
      for (int t = 0; t < 3; ++t) {
        const int cell = (b * 2 + head) * 3 + t;
        EXPECT_EQ(written[cell], static_cast<float>((b * 3 + t) * 10 + head));
        EXPECT_EQ(max_logit[cell], -written[cell]);
      }
    }
  }
}

// Reads what `annulus gradients` reads: row numbers are [heads, tokens] in a file, and the spec
// takes the values that it leaves out from the file.
TEST(AttendJobTest, GradientsAreReadFromWhatAttendWrites) {
  const int64_t rows = 3, keys = 2, heads = 2;
  std::vector<float> q(rows * heads * 4, 1), k(keys * 4, 2), v(keys * 5, 3),
      wide(rows * heads * 5, 4), lse = {0, 1, 2, 10, 11, 12};
  const auto bytes = [](const std::vector<float>& values) {
    return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(values.data()),
                                       values.size() * sizeof(float));
  };
  const std::string path = testing::TempDir() + "/gradients.safetensors";
  ASSERT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"q", "F32", {rows, heads, 4}, bytes(q)},
                            {"k", "F32", {keys, 1, 4}, bytes(k)},
                            {"v", "F32", {keys, 1, 5}, bytes(v)},
                            {"output", "F32", {rows, heads, 5}, bytes(wide)},
                            {"lse", "F32", {heads, rows}, bytes(lse)},
                            {"d_out", "F32", {rows, heads, 5}, bytes(wide)},
                            {"d_lse", "F32", {heads, rows}, bytes(lse)}})
                  .ok());
  SafetensorsFile file = *SafetensorsFile::Open(path);
  v1::AttentionSpec given;
  ASSERT_TRUE(TakeGradientOptions(file, &given).ok());
  EXPECT_TRUE(given.gradients().d_lse());
  EXPECT_EQ(given.out_dtype(), v1::DATA_TYPE_FP32);
  const JobShape shape = *ShapeOf(file);
  absl::StatusOr<AttendJob> job =
      AttendJob::FromFile(std::move(file), *CompleteSpec(given, shape), shape);
  ASSERT_TRUE(job.ok()) << job.status();
  AttendArguments arguments;
  job->FillArguments(&arguments);
  for (const TensorId id : {TensorId::kLse, TensorId::kDLse}) {
    const auto* on_wire = reinterpret_cast<const float*>(arguments.inputs.at(id).data());
    EXPECT_EQ(std::vector<float>(on_wire, on_wire + 6), (std::vector<float>{0, 10, 1, 11, 2, 12}));
  }
  EXPECT_EQ(arguments.outputs.at(TensorId::kDk).size(), k.size() * sizeof(float));
  const std::string target = testing::TempDir() + "/gradients_out.safetensors";
  SafetensorsWriter writer = *SafetensorsWriter::Create(target);
  ASSERT_TRUE(job->WriteOutputs(&writer).ok());
  const SafetensorsFile written = *SafetensorsFile::Open(target);
  EXPECT_EQ(written.Find("dq")->shape, (std::vector<int64_t>{rows, heads, 4}));
  EXPECT_EQ(written.Find("dv")->shape, (std::vector<int64_t>{keys, 1, 5}));
  EXPECT_EQ(written.Find("output"), nullptr);
  ASSERT_EQ(truncate(path.c_str(), 8), 0);
  SafetensorsWriter late = *SafetensorsWriter::Create(target);
  EXPECT_EQ(DetailOf(job->WriteOutputs(&late)).reason, "INPUT_CHANGED");
}

// Output bytes of a synthetic job, and of one with a bias of one row for all, as a file has it.
TEST(AttendJobTest, TheBytesOfTheOutputAreKnownBeforeThereIsOne) {
  const std::string made = "2,5,7,4,2,8,6,bf16,1";
  for (
      const std::string json :
      {"{}", R"({"outputs": {"maxLogit": true}, "outDtype": "DATA_TYPE_FP32"})",
       R"({"gradients": {}, "modifiers": {"sinks": [1, 2, 3, 4]}})",
       R"({"gradients": {"dBias": true}, "modifiers": {"bias": {"dtype": "DATA_TYPE_BF16", "heads": 4}}})"}) {
    const AttentionSpec spec = *Complete(json, made);
    const absl::StatusOr<AttendJob> job = AttendJob::Synthetic(spec, *ParseSynthetic(made));
    ASSERT_TRUE(job.ok()) << job.status();
    const std::string target = testing::TempDir() + "/known.safetensors";
    SafetensorsWriter writer = *SafetensorsWriter::Create(target);
    ASSERT_TRUE(job->WriteOutputs(&writer).ok());
    const SafetensorsFile written = *SafetensorsFile::Open(target);
    EXPECT_EQ(BytesToWrite(spec, nullptr), written.tensors().back().end) << json;
    if (!BiasAndMaskInputs(spec).d_bias) continue;
    const std::vector<std::byte> row(7 * 2);
    const std::string source = testing::TempDir() + "/known_bias.safetensors";
    ASSERT_TRUE(SafetensorsWriter::Create(source)->Commit({{"bias", "BF16", {1, 7}, row}}).ok());
    const SafetensorsFile input = *SafetensorsFile::Open(source);
    EXPECT_EQ(BytesToWrite(spec, nullptr) - BytesToWrite(spec, &input), (2 * 4 * 5 - 1) * 7 * 2);
  }
}

}  // namespace
}  // namespace annulus
