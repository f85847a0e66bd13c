// Jobs of files whose tensors have another dimension order than jobs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {
namespace {

constexpr int64_t kBatch = 2, kQueries = 3, kKeys = 4, kHeads = 4, kKvHeads = 2, kDim = 5,
                  kValueDim = 6;

std::string Path(const std::string& name) { return testing::TempDir() + "/" + name; }

// Packed rows of a gradients job by name, each number different, and their layout.
class LayoutFile {
 public:
  explicit LayoutFile(TensorLayout layout)
      : layout_(layout), batch_(HasBatch(layout) ? kBatch : 1) {
    Add("q", layout, kQueries, kHeads, kDim);
    Add("k", layout, kKeys, kKvHeads, kDim);
    Add("v", layout, kKeys, kKvHeads, kValueDim);
    Add("output", layout, kQueries, kHeads, kValueDim);
    Add("d_out", layout, kQueries, kHeads, kValueDim);
    Add("lse", HasBatch(layout) ? TensorLayout::kBhsd : TensorLayout::kHnd, kQueries, kHeads, 1);
  }

  absl::Span<const std::byte> rows(const std::string& name) const { return rows_.at(name); }
  const CallerTensor& in_file(const std::string& name) const { return in_file_.at(name); }

  SafetensorsFile Write() const {
    std::map<std::string, std::vector<std::byte>> laid;
    std::vector<SafetensorView> views;
    for (const auto& [name, rows] : rows_) {
      laid[name].resize(rows.size());
      EXPECT_TRUE(UnpackRows(in_file(name), rows, absl::MakeSpan(laid[name])).ok());
      std::vector<int64_t> shape = in_file(name).shape;
      if (name == "lse") shape.pop_back();
      views.push_back({name, "F32", shape, laid[name]});
    }
    const std::string path = Path(std::string(TensorLayoutName(layout_)) + ".safetensors");
    EXPECT_TRUE(SafetensorsWriter::Create(path)->Commit(views).ok());
    return *SafetensorsFile::Open(path);
  }

 private:
  void Add(const std::string& name, TensorLayout layout, int64_t tokens, int64_t heads,
           int64_t dim) {
    std::vector<float> values(batch_ * tokens * heads * dim);
    std::iota(values.begin(), values.end(), static_cast<float>(rows_.size()) / 8);
    rows_[name].resize(values.size() * sizeof(float));
    std::memcpy(rows_[name].data(), values.data(), rows_[name].size());
    in_file_[name] = {layout, sizeof(float), ShapeIn(layout, {batch_, tokens, heads, dim}), {}};
  }

  const TensorLayout layout_;
  const int64_t batch_;
  std::map<std::string, std::vector<std::byte>> rows_;
  std::map<std::string, CallerTensor> in_file_;
};

class AttendJobLayoutTest : public testing::TestWithParam<TensorLayout> {
 protected:
  // The file's job, with its operation.
  static AttendJob Job(SafetensorsFile file, v1::AttentionSpec given) {
    const JobShape shape = *ShapeOf(file, GetParam());
    return *AttendJob::FromFile(std::move(file), *CompleteSpec(std::move(given), shape), shape);
  }
  static v1::AttentionSpec Gradients(const SafetensorsFile& file) {
    v1::AttentionSpec given;
    given.mutable_gradients();
    EXPECT_TRUE(TakeGradientOptions(file, &given).ok());
    return given;
  }
  // A file's tensor as packed rows.
  static std::vector<std::byte> PackedOf(const SafetensorsFile& file, const std::string& name,
                                         const CallerTensor& in_file) {
    std::vector<std::byte> rows(*PackedBytes(in_file));
    EXPECT_TRUE(PackRows(in_file, file.Bytes(*file.Find(name)), absl::MakeSpan(rows)).ok());
    return rows;
  }
};

TEST_P(AttendJobLayoutTest, InputsAreTheRowsOfTheirFile) {
  const LayoutFile wanted(GetParam());
  SafetensorsFile file = wanted.Write();
  const v1::AttentionSpec gradients = Gradients(file);
  AttendJob job = Job(std::move(file), gradients);
  EXPECT_EQ(job.spec().sequences.size(), HasBatch(GetParam()) ? kBatch : 1);
  EXPECT_EQ(job.spec().q_heads, kHeads);
  EXPECT_EQ(job.spec().sequences[0].kv_len, kKeys);
  AttendArguments arguments;
  job.FillArguments(&arguments);
  for (const auto& [id, bytes] : arguments.inputs) {
    const absl::Span<const std::byte> rows = wanted.rows(std::string(TensorName(id)));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), rows.begin(), rows.end())) << TensorName(id);
  }
  EXPECT_EQ(arguments.inputs.size(), 6u);
}

TEST_P(AttendJobLayoutTest, OutputsLieAsTheInputs) {
  const LayoutFile wanted(GetParam());
  SafetensorsFile file = wanted.Write();
  AttendJob job = Job(std::move(file), v1::AttentionSpec());
  AttendArguments arguments;
  job.FillArguments(&arguments);
  for (const auto& [id, bytes] : arguments.outputs) {
    const absl::Span<const std::byte> rows = wanted.rows(std::string(TensorName(id)));
    ASSERT_EQ(bytes.size(), rows.size());
    std::memcpy(bytes.data(), rows.data(), rows.size());
  }
  SafetensorsWriter writer = *SafetensorsWriter::Create(Path("answer.safetensors"));
  ASSERT_TRUE(job.WriteOutputs(&writer).ok());
  const SafetensorsFile answer = *SafetensorsFile::Open(Path("answer.safetensors"));
  EXPECT_EQ(answer.Find("output")->shape, wanted.in_file("output").shape);
  for (const char* name : {"output", "lse"}) {
    const std::vector<std::byte> rows = PackedOf(answer, name, wanted.in_file(name));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), wanted.rows(name).begin())) << name;
  }
}

TEST_P(AttendJobLayoutTest, GradientsLieAsTheInputs) {
  const LayoutFile wanted(GetParam());
  SafetensorsFile file = wanted.Write();
  const v1::AttentionSpec gradients = Gradients(file);
  AttendJob job = Job(std::move(file), gradients);
  AttendArguments arguments;
  job.FillArguments(&arguments);
  const std::map<TensorId, std::string> same = {
      {TensorId::kDq, "q"}, {TensorId::kDk, "k"}, {TensorId::kDv, "v"}};
  for (const auto& [id, name] : same) {
    const absl::Span<std::byte> bytes = arguments.outputs.at(id);
    ASSERT_EQ(bytes.size(), wanted.rows(name).size());
    std::memcpy(bytes.data(), wanted.rows(name).data(), bytes.size());
  }
  SafetensorsWriter writer = *SafetensorsWriter::Create(Path("gradients_answer.safetensors"));
  ASSERT_TRUE(job.WriteOutputs(&writer).ok());
  const SafetensorsFile answer = *SafetensorsFile::Open(Path("gradients_answer.safetensors"));
  for (const auto& [id, name] : same) {
    EXPECT_EQ(answer.Find(TensorName(id))->shape, wanted.in_file(name).shape);
    const std::vector<std::byte> rows =
        PackedOf(answer, std::string(TensorName(id)), wanted.in_file(name));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), wanted.rows(name).begin())) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AttendJobLayoutTest,
                         testing::Values(TensorLayout::kThd, TensorLayout::kHnd,
                                         TensorLayout::kBshd, TensorLayout::kBhsd,
                                         TensorLayout::kSbhd),
                         [](const auto& info) {
                           return std::string(TensorLayoutName(info.param));
                         });

TEST(OtherLayoutTest, AnotherNumberOfDimensionsIsRefused) {
  const auto refusal = [](TensorLayout written, TensorLayout asked) {
    return ShapeOf(LayoutFile(written).Write(), asked).status();
  };
  for (const absl::Status& status : {refusal(TensorLayout::kThd, TensorLayout::kBhsd),
                                     refusal(TensorLayout::kBshd, TensorLayout::kHnd)}) {
    EXPECT_EQ(DetailOf(status).reason, "SHAPE_MISMATCH") << status;
  }
  EXPECT_EQ(refusal(TensorLayout::kThd, TensorLayout::kBhsd).message(),
            "q: has shape [3, 4, 5], but must be [batch, heads, tokens, dim]");
  // With heads instead of tokens, q, k and v match only by chance.
  EXPECT_EQ(DetailOf(refusal(TensorLayout::kBshd, TensorLayout::kSbhd)).reason, "SHAPE_MISMATCH");
}

}  // namespace
}  // namespace annulus
