#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/spec/spec.h"
#include "tests/worker/executor/job_runner.h"

namespace annulus {

// The guarantee of spec.deterministic, over plans.

// The bits of a job's outputs.
using Bits = std::vector<std::vector<float>>;
bool Same(const Bits& a, const Bits& b);
// Requires: the job has run.
Bits BitsOf(const AttentionSpec& spec, const JobRunner& runner);

// Executions of a job that do not add gradients by rank.
std::vector<Execution> FoldingWays(const AttentionSpec& spec, int32_t world, Strategy strategy);
// Sets the n-th of them, modulo their number. False if there is none.
bool SetFoldingPlan(int32_t world, Layout layout, Strategy strategy, uint64_t n, JobCase* job);

// Named deterministic jobs that are small enough for an emulator: both operations, bf16 and fp32,
// lengths that are not multiples of a tile, groups of query heads that divide a kernel's tile of
// rows and that do not, windows, ALiBi, masks of single heads, the bias gradient.
std::vector<std::pair<std::string, JobCase>> SmallFoldingJobs();
// Plans of a job on `world` ranks, with every strategy and every layout at least once.
std::vector<JobCase> FoldingPlans(const JobCase& job, int32_t world);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_
