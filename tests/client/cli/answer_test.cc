#include "client/cli/answer.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "client/cli/report.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// An answered job of one key: the output is the value, the LSE the score.
class AnswerTest : public testing::Test {
 protected:
  AnswerTest() {
    job_.FillArguments(&arguments_);
    const float* q = Input(TensorId::kQ);
    const float* k = Input(TensorId::kK);
    for (int row = 0; row < kRows; ++row) {
      float score = 0;
      for (int i = 0; i < kDim; ++i) {
        Output(TensorId::kOut)[row * kDim + i] = Input(TensorId::kV)[i];
        score += q[row * kDim + i] * k[i];
      }
      Output(TensorId::kLse)[row] = score / std::sqrt(static_cast<float>(kDim));
    }
    unlink(path_.c_str());
  }

  const float* Input(TensorId id) const {
    return reinterpret_cast<const float*>(arguments_.inputs.at(id).data());
  }
  float* Output(TensorId id) const {
    return reinterpret_cast<float*>(arguments_.outputs.at(id).data());
  }
  bool Exists(const std::string& path) const { return access(path.c_str(), F_OK) == 0; }

  static constexpr int kRows = 3, kDim = 8;
  const SyntheticShape shape_ = *ParseSynthetic("1,3,1,1,1,8,fp32,5");
  AttendJob job_ = *AttendJob::Synthetic(*CompleteSpec({}, shape_.shape), shape_);
  AttendArguments arguments_;
  const std::string path_ = testing::TempDir() + "/answer.safetensors";
};

TEST_F(AnswerTest, ARightAnswerIsWritten) {
  SafetensorsWriter file = *SafetensorsWriter::Create(path_);
  const std::string partial = file.partial();
  EXPECT_TRUE(Exists(partial));
  const auto verification = TakeAnswer(job_, {3}, &file);
  ASSERT_TRUE(verification.ok()) << verification.status();
  EXPECT_EQ((*verification)->report->rows.size(), 3u);
  EXPECT_TRUE(Exists(path_));
  EXPECT_FALSE(Exists(partial));
}

TEST_F(AnswerTest, AWrongAnswerEndsWithCode6AndWithoutAFile) {
  Output(TensorId::kOut)[5] += 0.01f;
  std::string partial;
  {
    SafetensorsWriter file = *SafetensorsWriter::Create(path_);
    partial = file.partial();
    const absl::Status status = TakeAnswer(job_, {3}, &file).status();
    EXPECT_EQ(DetailOf(status).reason, "RESULT_VERIFICATION_FAILED");
    EXPECT_EQ(ReportError(status, /*json=*/false), 6);
  }
  EXPECT_FALSE(Exists(path_));
  EXPECT_FALSE(Exists(partial));
}

TEST_F(AnswerTest, NothingIsVerifiedUnasked) {
  Output(TensorId::kLse)[0] = 7;
  EXPECT_FALSE(TakeAnswer(job_, {}, nullptr)->has_value());
  EXPECT_EQ(DetailOf(TakeAnswer(job_, {1000}, nullptr).status()).reason,
            "RESULT_VERIFICATION_FAILED");
}

TEST(AnswerOfFileTest, IsNotVerifiedByInputsThatHaveChanged) {
  const std::string path = testing::TempDir() + "/answer_inputs.safetensors";
  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(ones), sizeof(ones));
  ASSERT_TRUE(SafetensorsWriter::Create(path)
                  ->Commit({{"q", "F32", {1, 1, 8}, bytes},
                            {"k", "F32", {1, 1, 8}, bytes},
                            {"v", "F32", {1, 1, 8}, bytes}})
                  .ok());
  SafetensorsFile file = *SafetensorsFile::Open(path);
  const JobShape shape = *ShapeOf(file);
  const AttendJob job = *AttendJob::FromFile(std::move(file), *CompleteSpec({}, shape), shape);
  EXPECT_TRUE(TakeAnswer(job, {}, nullptr).ok());
  ASSERT_EQ(truncate(path.c_str(), 8), 0);
  EXPECT_EQ(DetailOf(TakeAnswer(job, {1}, nullptr).status()).reason, "INPUT_CHANGED");
}

}  // namespace
}  // namespace annulus
