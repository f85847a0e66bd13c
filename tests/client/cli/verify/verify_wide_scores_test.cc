#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "attention/spec/dtype.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/verify/verify_gradients.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr int64_t kRows = 24, kKeys = 40, kHeads = 4, kKvHeads = 2, kDim = 16;

// One sequence, grouped heads, and one number as the bias of all pairs: like a fully masked padding
// row. With it, an fp32 LSE has no precision left for log kKeys.
class WideJob {
 public:
  WideJob(DataType dtype, float bias, uint64_t seed) : random_(seed) {
    spec_.operation = Operation::kGradients;
    spec_.dtype = dtype;
    spec_.q_heads = kHeads;
    spec_.kv_heads = kKvHeads;
    spec_.head_dim = kDim;
    spec_.sequences.resize(1);
    spec_.sequences[0].q_len = kRows;
    spec_.sequences[0].kv_len = kKeys;
    spec_.modifiers.bias = Bias{dtype, kHeads};
    spec_.gradients.d_bias = true;
    for (const TensorId id : {TensorId::kQ, TensorId::kK, TensorId::kV, TensorId::kDOut}) {
      for (float& value : Tensor(id)) value = Rounded(normal_(random_));
    }
    Tensor(TensorId::kBias).assign(kRows * kHeads * kKeys, Rounded(bias));
    Tensor(TensorId::kLse).assign(kRows * kHeads, Rounded(bias));
  }

  // Computes the answer in double, with weights softmax(spread · x) · `times` for scores x without
  // bias.
  void Solve(double spread, double times) {
    const int64_t outputs = kRows * kHeads * kDim;
    Tensor(TensorId::kOut).assign(outputs, 0);
    dq_.assign(outputs, 0);
    dk_.assign(kKeys * kKvHeads * kDim, 0);
    dv_ = dk_;
    d_bias_.assign(kRows * kHeads * kKeys, 0);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) SolveRow(row, head, spread, times);
    }
    Put(TensorId::kDq, dq_);
    Put(TensorId::kDk, dk_);
    Put(TensorId::kDv, dv_);
    Put(TensorId::kDBias, d_bias_);
  }

  GradientReport Verify(int64_t count, GivenLse lse = GivenLse::kJudged) const {
    std::map<TensorId, const std::byte*> tensors;
    std::map<TensorId, std::vector<std::byte>> memory;
    for (const TensorInfo& tensor : TensorTable(spec_)) {
      const std::vector<float>& values = values_.at(tensor.id);
      std::vector<std::byte>& bytes = memory[tensor.id];
      bytes.resize(values.size() * BytesPerElement(tensor.dtype));
      ConvertFromFp32(tensor.dtype, values.data(), values.size(), bytes.data());
      tensors[tensor.id] = bytes.data();
    }
    return VerifyGradients(spec_, tensors, count, 3, lse);
  }

 private:
  std::vector<float>& Tensor(TensorId id) {
    std::vector<float>& values = values_[id];
    for (const TensorInfo& tensor : TensorTable(spec_)) {
      if (tensor.id == id && values.empty()) {
        values.resize(RowsOf(tensor, spec_) * tensor.heads * tensor.dim);
      }
    }
    return values;
  }
  void Put(TensorId id, const std::vector<double>& values) {
    Tensor(id).assign(values.begin(), values.end());
  }

  float Rounded(float value) const {
    std::byte bytes[sizeof(float)];
    ConvertFromFp32(spec_.dtype, &value, 1, bytes);
    ConvertToFp32(spec_.dtype, bytes, 1, &value);
    return value;
  }

  static double Dot(const float* a, const float* b) {
    double sum = 0;
    for (int64_t d = 0; d < kDim; ++d) sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    return sum;
  }

  void SolveRow(int64_t row, int64_t head, double spread, double times) {
    const double scale = 1 / std::sqrt(static_cast<double>(kDim));
    const int64_t kv_head = head / (kHeads / kKvHeads), cell = (row * kHeads + head) * kDim;
    const float *q = &Tensor(TensorId::kQ)[cell], *d_out = &Tensor(TensorId::kDOut)[cell];
    const auto at = [&](int64_t key) { return (key * kKvHeads + kv_head) * kDim; };
    const std::vector<float>&k = Tensor(TensorId::kK), &v = Tensor(TensorId::kV);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t key = 0; key < kKeys; ++key) {
      weights.push_back(std::exp(spread * scale * Dot(q, &k[at(key)])));
      sum += weights.back();
    }
    float* out = &Tensor(TensorId::kOut)[cell];
    for (int64_t d = 0; d < kDim; ++d) {
      double value = 0;
      for (int64_t key = 0; key < kKeys; ++key) value += weights[key] / sum * v[at(key) + d];
      out[d] = Rounded(static_cast<float>(value));
    }
    const double delta = Dot(d_out, out);
    for (int64_t key = 0; key < kKeys; ++key) {
      const double weight = times * weights[key] / sum;
      const double d_score = weight * (Dot(d_out, &v[at(key)]) - delta);
      d_bias_[(row * kHeads + head) * kKeys + key] = d_score;
      for (int64_t d = 0; d < kDim; ++d) {
        dq_[cell + d] += scale * d_score * static_cast<double>(k[at(key) + d]);
        dk_[at(key) + d] += scale * d_score * static_cast<double>(q[d]);
        dv_[at(key) + d] += weight * static_cast<double>(d_out[d]);
      }
    }
  }

  AttentionSpec spec_;
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
  std::map<TensorId, std::vector<float>> values_;
  std::vector<double> dq_, dk_, dv_, d_bias_;
};

struct Case {
  DataType dtype;
  float bias;
};

std::vector<Case> Cases() {
  const float lowest = std::numeric_limits<float>::lowest();
  return {{DataType::kFp32, -1e9f},
          {DataType::kBf16, -1e9f},
          {DataType::kFp32, lowest},
          {DataType::kBf16, -0x1.fep127f}};
}

std::string Text(const Case& each, int64_t rows, const GradientReport& report) {
  return std::string(DataTypeName(each.dtype)) + " " + std::to_string(each.bias) + ", " +
         std::to_string(rows) + " rows: " + std::string(TensorName(report.worst_tensor)) + " " +
         std::to_string(report.error) + " of " + std::to_string(report.budget);
}

TEST(VerifyWideScoresTest, AWeightOfOneForEachKeyIsFound) {
  for (const Case& each : Cases()) {
    WideJob job(each.dtype, each.bias, 11);
    job.Solve(/*spread=*/0, /*times=*/kKeys);
    for (const int64_t rows : {2, 1000}) {
      const GradientReport report = job.Verify(rows);
      EXPECT_FALSE(report.within()) << Text(each, rows, report);
    }
  }
}

// Rows whose scores are all equal in fp32.
TEST(VerifyWideScoresTest, EqualWeightsPass) {
  for (const Case& each : Cases()) {
    WideJob job(each.dtype, each.bias, 12);
    job.Solve(/*spread=*/0, /*times=*/1);
    for (const int64_t rows : {2, 1000}) {
      const GradientReport report = job.Verify(rows);
      EXPECT_TRUE(report.within()) << Text(each, rows, report);
    }
  }
}

// −1e9 leaves enough precision for scores in fp64.
TEST(VerifyWideScoresTest, ExactWeightsPass) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16}) {
    WideJob job(dtype, -1e9f, 13);
    job.Solve(/*spread=*/1, /*times=*/1);
    for (const int64_t rows : {2, 1000}) {
      const GradientReport report = job.Verify(rows);
      EXPECT_TRUE(report.within()) << Text({dtype, -1e9f}, rows, report);
    }
  }
}

// The LSE that `annulus gradients --synthetic` makes.
TEST(VerifyWideScoresTest, AMadeLseIsTaken) {
  WideJob job(DataType::kFp32, -1e9f, 15);
  job.Solve(/*spread=*/0, /*times=*/kKeys);
  EXPECT_TRUE(job.Verify(1000, GivenLse::kTaken).within());
  EXPECT_FALSE(job.Verify(1000).within());
}

// The answer is not judged by a given LSE in range that is not the row's.
TEST(VerifyWideScoresTest, TheLseOfTheJobIsNotTaken) {
  WideJob job(DataType::kFp32, 0, 14);
  job.Solve(/*spread=*/1, /*times=*/kKeys);  // With LSE 0 this would almost be the answer.
  EXPECT_FALSE(job.Verify(1000).within());
  job.Solve(/*spread=*/1, /*times=*/1);
  const GradientReport report = job.Verify(1000);
  EXPECT_TRUE(report.within()) << report.error << " of " << report.budget;
}

}  // namespace
}  // namespace annulus
