#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/spec/spec.h"
#include "tests/worker/executor/job_runner.h"

namespace annulus {

// What spec.deterministic promises, over plans.

// The bits of a job's outputs.
using Bits = std::vector<std::vector<float>>;
bool Same(const Bits& a, const Bits& b);
// Of a job that has run.
Bits BitsOf(const AttentionSpec& spec, const JobRunner& runner);

// Ways to run a job that add no gradients up by rank.
std::vector<Execution> FoldingWays(const AttentionSpec& spec, int32_t world, Strategy strategy);
// Takes the n-th of them, counted round; false where there is none.
bool SetFoldingPlan(int32_t world, Layout layout, Strategy strategy, uint64_t n, JobCase* job);

// Deterministic jobs, with names, that are small enough for an emulator: both operations, bf16 and
// fp32, lengths that are no multiples of a tile, groups of query heads that divide a kernel's tile
// of rows and that do not, windows, ALiBi, masks of single heads, the gradient of a bias.
std::vector<std::pair<std::string, JobCase>> SmallFoldingJobs();
// Plans of a job on so many ranks: each strategy that there is and each layout at least once.
std::vector<JobCase> FoldingPlans(const JobCase& job, int32_t world);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_SAME_BITS_H_
