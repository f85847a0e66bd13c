#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace annulus {

// One value of each axis.
using Combination = std::vector<int32_t>;

// Whether value `i` of axis `a` and value `j` of axis `b` can stand together; a < b.
using Meaningful = std::function<bool(int32_t a, int32_t i, int32_t b, int32_t j)>;

// Combinations of axes with `sizes` values, all of whose pairs are meaningful, such that each
// meaningful pair of values is in one of them: about as many as the two largest axes have pairs.
// Same seed, same combinations. A pair that no combination can hold is left out.
std::vector<Combination> CoverPairs(const std::vector<int32_t>& sizes, const Meaningful& meaningful,
                                    uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_
