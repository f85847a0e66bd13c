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

// The axes of the conformance suite (docs/explanation/testing.md). A new option is a new value of
// an axis: it is combined with every value of every other axis at the cost of a few jobs.

struct ConformanceJob {
  JobCase job;
  bool cpu_kernel = false;  // Otherwise the reference kernel, at a smaller size.
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
  bool forward_only = false;  // Gradients do not serve it.
};

struct Axis {
  std::string name;
  std::vector<AxisValue> values;
};

// In the order in which they are set.
const std::vector<Axis>& ConformanceAxes();
int32_t AxisNamed(const std::string& name);

// Sizes for CoverPairs.
std::vector<int32_t> ConformanceSizes();
// Sizes for small jobs only, which use the reference kernel.
std::vector<int32_t> SmallSizes();
bool IsMeaningful(int32_t a, int32_t i, int32_t b, int32_t j);

// The job of a combination. `seed` draws odd shapes and everything that the values leave open.
ConformanceJob MakeConformanceJob(const Combination& combination, uint64_t seed);
// The names of its values.
std::string Describe(const Combination& combination);

// Sets `strategy` on the ranks of the job's plan, with the n-th resolved execution, modulo their
// number.
void SetStrategy(Strategy strategy, uint64_t n, JobCase* job);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_CONFORMANCE_CASES_H_
