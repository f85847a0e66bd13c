#ifndef ANNULUS_TESTS_CLIENT_CLIENT_JOBS_H_
#define ANNULUS_TESTS_CLIENT_CLIENT_JOBS_H_

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/client/fake_service.h"

namespace annulus {

// Jobs for FakeService, and their results.

// A job whose output is q and whose LSE is the row, as FakeService computes it.
struct ClientJob {
  explicit ClientJob(int64_t q_len, int64_t kv_len = 33) {
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 2;
    spec.head_dim = 8;
    spec.sequences.resize(1);
    spec.sequences[0].q_len = q_len;
    spec.sequences[0].kv_len = kv_len;
    q.resize(q_len * 16);
    std::iota(q.begin(), q.end(), 1.f);
    kv.resize(kv_len * 16, 1.f);
    out.resize(q.size(), -1);
    lse.resize(q_len * 2, -1);
  }

  AttendArguments Arguments(DataPath path) {
    AttendArguments arguments;
    arguments.spec = spec;
    arguments.inputs = {
        {TensorId::kQ, Bytes(q)}, {TensorId::kK, Bytes(kv)}, {TensorId::kV, Bytes(kv)}};
    arguments.outputs = {{TensorId::kOut, MutableBytes(out)}, {TensorId::kLse, MutableBytes(lse)}};
    arguments.path = path;
    arguments.timeout = absl::Seconds(20);
    return arguments;
  }

  void ExpectServed() const {
    EXPECT_EQ(out, q);
    for (size_t i = 0; i < lse.size(); ++i) ASSERT_EQ(lse[i], static_cast<float>(i / 2)) << i;
  }

  static absl::Span<const std::byte> Bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
  }
  static absl::Span<std::byte> MutableBytes(std::vector<float>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
  }

  AttentionSpec spec;
  std::vector<float> q, kv, out, lse;
};

// Gradients of a small job by the state of job "kept", with all inputs at hand.
struct StateJob : ClientJob {
  explicit StateJob(int64_t q_len = 20)
      : ClientJob(q_len), dq(q.size(), -1), dk(kv.size(), -1), dv(kv.size(), -1) {}
  AttendArguments Gradients(DataPath path) {
    AttendArguments arguments = Arguments(path);
    arguments.spec.operation = Operation::kGradients;
    arguments.spec.gradients.state = "kept";
    arguments.upload_without_state = true;
    arguments.inputs[TensorId::kOut] = arguments.inputs[TensorId::kDOut] = Bytes(q);
    arguments.inputs[TensorId::kLse] = Bytes(lse);
    arguments.outputs = {{TensorId::kDq, MutableBytes(dq)},
                         {TensorId::kDk, MutableBytes(dk)},
                         {TensorId::kDv, MutableBytes(dv)}};
    return arguments;
  }
  // Only with the inputs that the state lacks.
  AttendArguments GradientsOfState(DataPath path) {
    AttendArguments arguments = Gradients(path);
    arguments.upload_without_state = false;
    arguments.inputs = {{TensorId::kDOut, arguments.inputs[TensorId::kDOut]}};
    return arguments;
  }
  std::vector<float> dq, dk, dv;
};

inline ClientOptions At(const FakeService& service) {
  ClientOptions options;
  options.address = service.address();
  return options;
}

inline FakeService::Options Script(std::vector<FakeService::Act> acts) {
  FakeService::Options options;
  options.act = [acts](int call) { return acts[std::min<size_t>(call, acts.size()) - 1]; };
  return options;
}

// A status that another thread sets.
class AwaitedStatus {
 public:
  void Set(const absl::Status& status) {
    MutexLock lock(&mutex_);
    status_ = status;
    changed_.SignalAll();
  }
  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!status_.has_value()) {
      if (!changed_.WaitFor(&mutex_, absl::Seconds(20))) return absl::UnknownError("no answer");
    }
    return *status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> status_ GUARDED_BY(mutex_);
};

// The argument of AttendAsync's `done`.
class AttendOutcome : public AwaitedStatus {
 public:
  std::function<void(absl::StatusOr<AttendResult>)> Function() {
    return [this](const absl::StatusOr<AttendResult>& result) { Set(result.status()); };
  }
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_CLIENT_JOBS_H_
