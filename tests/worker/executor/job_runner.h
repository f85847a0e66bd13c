#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_JOB_RUNNER_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_JOB_RUNNER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "gtest/gtest.h"
#include "tests/reference/budget.h"
#include "tests/reference/gradient_budget.h"
#include "tests/worker/comm/group.h"
#include "worker/device/host.h"
#include "worker/executor/executor.h"

namespace annulus {

// A job, and how to run it.
struct JobCase {
  AttentionSpec spec;
  Execution execution;  // Resolved.
  PlanOptions plan;
  int32_t parts = 1;           // Parts of each step.
  int32_t segments = 1;        // The most segments.
  uint64_t seed = 1;           // Seed of the inputs.
  bool reads_staging = false;  // From the device.
  bool ends_rows = false;      // From the kernel.
};

std::string Describe(const JobCase& job);

// One sequence of q_len × kv_len rows, 4 query heads and 2 key/value heads, dimensions 8 and 12.
AttentionSpec SmallSpec(DataType dtype, int64_t q_len, int64_t kv_len);

// The numbers of a job, independent of its execution. Making them takes longer than most jobs run.
struct JobInputs {
  reference::Input input;
  reference::Upstream upstream;  // For gradients.
  // All rows of each tensor of TensorTable(spec). Empty for outputs.
  std::vector<std::vector<std::byte>> tensors;
};
std::shared_ptr<const JobInputs> MakeInputs(const AttentionSpec& spec, uint64_t seed);

// One rank's program, staged rows and arena of a job.
class RankJob {
 public:
  RankJob(const JobCase& job, int32_t rank, const JobInputs& inputs);

  // nullptr if the program could not be made; status() has the error.
  Executor* executor() { return executor_.get(); }
  const absl::Status& status() const { return status_; }
  const RankProgram& program() const { return *program_; }
  const StagedTensors& staged() const { return staged_; }
  // Fills its own options; takes the others from `options`, whose device must outlive this.
  void MakeExecutor(Executor::Options options);
  // Copies in, runs all segments, copies out.
  absl::Status RunAll(int32_t segments);
  // True if no byte beside the arena was written, and the arena was used up to its end.
  testing::AssertionResult UsedExactlyItsArena() const;
  testing::AssertionResult LeftItsInputsAlone() const;
  // The bytes of its rows of each output, by tensor. Empty for inputs.
  std::vector<std::vector<std::byte>> Outputs() const;

 private:
  absl::Status status_;
  std::shared_ptr<const RankProgram> program_;
  std::unique_ptr<Device> device_ = MakeHostDevice();
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<std::vector<std::byte>> inputs_;  // A copy of the original inputs.
  StagedTensors staged_;
  Device* arena_device_ = nullptr;
  DeviceMemory memory_;
  std::unique_ptr<Executor> executor_;
};

using KernelFactory = std::function<std::unique_ptr<AttentionKernel>()>;

// All ranks of a job.
class JobRunner {
 public:
  explicit JobRunner(const JobCase& job) : JobRunner(job, MakeInputs(job.spec, job.seed)) {}
  // `inputs` belong to the spec, and may be shared by all runs of it.
  JobRunner(const JobCase& job, std::shared_ptr<const JobInputs> inputs);
  // True if rows of some rank begin and end in tasks.
  bool EndsRows() const;

  // Runs the job on `group`, one thread per rank. The group may be larger than the job; the surplus
  // ranks do nothing. Checks that each rank used exactly its plan's memory and wrote to no input.
  testing::AssertionResult Run(Group& group, const KernelFactory& make_kernel);
  // Like Run; also checks the answer.
  testing::AssertionResult RunAndJudge(Group& group, const KernelFactory& make_kernel);
  // Compares the answer of a job that has run with the reference.
  testing::AssertionResult Judge() const;

  RankJob& rank(int32_t r) { return *ranks_[r]; }
  int32_t ranks() const { return static_cast<int32_t>(ranks_.size()); }
  // The error of the first rank whose program could not be made.
  absl::Status status() const;
  // The job's output, gathered from all ranks' staging.
  reference::Answer Gathered() const;
  reference::GradientAnswer GatheredGradients() const;

 private:
  std::vector<float> GatherTensor(TensorId id) const;  // In packed rows.

  const JobCase job_;
  const std::shared_ptr<const JobInputs> inputs_;
  std::vector<std::unique_ptr<RankJob>> ranks_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_JOB_RUNNER_H_
