// For every strategy, the error of outputs, LSE and gradients does not grow with the number of
// ranks: with 8 ranks the root mean square is at most 1.5 times that of one rank. The maximum
// depends partly on chance, so half a step of the type is added.

#include <algorithm>
#include <cmath>
#include <iostream>

#include "attention/spec/parallel_degrees.h"
#include "tests/reference/from_spec.h"
#include "tests/worker/executor/job_runner.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

constexpr int32_t kRanks = 8;
constexpr double kMostGrowth = 1.5;

std::unique_ptr<AttentionKernel> MakeCpu() { return *CpuKernel::Create({}); }

Group& RanksGroup() {
  static auto& group = *new Group(
      ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::ZeroDuration(), 1); }, kRanks));
  return group;
}

// Over all numbers of one tensor: the largest error, the root mean square of errors, the largest
// number.
struct Error {
  double largest = 0, root = 0, magnitude = 0;
};

Error ErrorOf(const std::vector<float>& found, const std::vector<double>& exact) {
  Error error;
  EXPECT_EQ(found.size(), exact.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double off = std::fabs(found[i] - exact[i]);
    EXPECT_TRUE(std::isfinite(off));
    error.largest = std::max(error.largest, off);
    error.magnitude = std::max(error.magnitude, std::fabs(exact[i]));
    error.root += off * off / static_cast<double>(found.size());
  }
  error.root = std::sqrt(error.root);
  return error;
}

AttentionSpec Spec(DataType dtype, Operation operation) {
  AttentionSpec spec = SmallSpec(dtype, 400, 400);
  spec.head_dim = spec.head_dim_v = 32;
  spec.operation = operation;
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

// The numbers of a job as its runner makes them, and the exact answers by tensor.
std::vector<std::vector<double>> ExactAnswers(const JobCase& job) {
  const reference::Precision precision = reference::PrecisionOf(job.spec.dtype);
  reference::Input input = reference::InputOf(job.spec);
  reference::FillNormal(job.seed, precision, 1.0, &input);
  if (job.spec.operation == Operation::kForward) {
    reference::Result exact = reference::Exact(input);
    return {std::move(exact.out), std::move(exact.lse)};
  }
  const reference::Upstream upstream =
      reference::MakeUpstream(input, precision, reference::PrecisionOf(job.spec.output_dtype()),
                              job.spec.gradients.d_lse, job.seed + 1);
  reference::Gradients exact = reference::ExactGradients(input, upstream);
  return {std::move(exact.dq), std::move(exact.dk), std::move(exact.dv)};
}

std::vector<Error> ErrorsOf(const JobCase& job, const std::vector<std::vector<double>>& exact) {
  JobRunner runner(job);
  EXPECT_TRUE(runner.Run(RanksGroup(), MakeCpu));
  std::vector<std::vector<float>> found;
  if (job.spec.operation == Operation::kForward) {
    const reference::Answer answer = runner.Gathered();
    found = {answer.out, answer.lse};
  } else {
    const reference::GradientAnswer answer = runner.GatheredGradients();
    found = {answer.dq, answer.dk, answer.dv};
  }
  std::vector<Error> errors;
  for (size_t i = 0; i < exact.size(); ++i) errors.push_back(ErrorOf(found[i], exact[i]));
  return errors;
}

void SetPlan(int32_t world, Strategy strategy, JobCase* job) {
  job->plan.world_size = world;
  job->plan.layout = world == 1 ? Layout::kContiguous : Layout::kZigzag;
  Execution open;
  open.strategy = strategy;
  job->execution = ResolveDegrees(open, world, job->spec.q_heads).back();
}

void ExpectNoGrowth(DataType dtype, Operation operation, const std::vector<Strategy>& strategies) {
  JobCase job;
  job.spec = Spec(dtype, operation);
  job.seed = 20261122;
  const std::vector<std::vector<double>> exact = ExactAnswers(job);
  SetPlan(1, Strategy::kRingPassKv, &job);
  const std::vector<Error> alone = ErrorsOf(job, exact);
  for (const Strategy strategy : strategies) {
    SetPlan(kRanks, strategy, &job);
    SCOPED_TRACE(Describe(job));
    const std::vector<Error> together = ErrorsOf(job, exact);
    for (size_t i = 0; i < exact.size(); ++i) {
      std::cout << StrategyName(strategy) << " tensor " << i << ": largest "
                << together[i].largest / alone[i].largest << ", mean square "
                << together[i].root / alone[i].root << " times that of one rank\n";
      const bool lse = operation == Operation::kForward && i == 1;
      const reference::Precision type = reference::PrecisionOf(lse ? DataType::kFp32 : dtype);
      const double step = reference::UlpOf(type, together[i].magnitude);
      EXPECT_LE(together[i].largest, kMostGrowth * alone[i].largest + step / 2) << i;
      EXPECT_LE(together[i].root, kMostGrowth * alone[i].root) << i;
    }
  }
}

const std::vector<Strategy>& AllStrategies() {
  static const auto& all = *new std::vector<Strategy>{
      Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kRotateKv,
      Strategy::kHalo,       Strategy::kUlysses,     Strategy::kUlyssesRing,
      Strategy::kRingPassQ,  Strategy::kDoubleRing,  Strategy::kTree};
  return all;
}

TEST(ErrorGrowthTest, ForwardFp32) {
  ExpectNoGrowth(DataType::kFp32, Operation::kForward, AllStrategies());
}

TEST(ErrorGrowthTest, ForwardBf16) {
  ExpectNoGrowth(DataType::kBf16, Operation::kForward, AllStrategies());
}

TEST(ErrorGrowthTest, GradientsFp32) {
  ExpectNoGrowth(DataType::kFp32, Operation::kGradients, AllStrategies());
}

TEST(ErrorGrowthTest, GradientsBf16) {
  ExpectNoGrowth(DataType::kBf16, Operation::kGradients, AllStrategies());
}

}  // namespace
}  // namespace annulus
