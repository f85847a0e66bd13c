#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_CONFORMANCE_CASES_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_CONFORMANCE_CASES_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/worker/executor/job_runner.h"
#include "tests/worker/executor/pairwise.h"

namespace annulus {

// What the conformance suite varies (docs/explanation/testing.md): a new option is a value of an
// axis, and so meets every value of every other axis at the cost of a few jobs.

struct ConformanceJob {
  JobCase job;
  bool cpu_kernel = false;  // Else the reference kernel, at a smaller size.
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }
  uint64_t Seed() { return random_(); }

 private:
  std::mt19937_64 random_;
};

struct AxisValue {
  std::string name;
  std::function<void(Draw*, ConformanceJob*)> set;
  bool forward_only = false;  // No gradients are served with it.
};

struct Axis {
  std::string name;
  std::vector<AxisValue> values;
};

// In the order in which they are set.
const std::vector<Axis>& ConformanceAxes();
int32_t AxisNamed(const std::string& name);

// Combinations for CoverPairs.
std::vector<int32_t> ConformanceSizes();
// Of small jobs alone, those of the reference kernel.
std::vector<int32_t> SmallSizes();
bool IsMeaningful(int32_t a, int32_t i, int32_t b, int32_t j);

// The job of a combination: odd shapes and whatever its values leave open are drawn by `seed`.
ConformanceJob MakeConformanceJob(const Combination& combination, uint64_t seed);
// The names of its values.
std::string Describe(const Combination& combination);

// `strategy` on the ranks of the job's plan, resolved in the n-th way that there is, counted round.
void SetStrategy(Strategy strategy, uint64_t n, JobCase* job);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_CONFORMANCE_CASES_H_
