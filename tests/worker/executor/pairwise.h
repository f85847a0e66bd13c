#ifndef ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_
#define ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace annulus {

// One value of each axis.
using Combination = std::vector<int32_t>;

// True if value `i` of axis `a` and value `j` of axis `b` may be combined; a < b.
using Meaningful = std::function<bool(int32_t a, int32_t i, int32_t b, int32_t j)>;

// Combinations for axes with `sizes` values. All their pairs are meaningful, and each meaningful
// pair of values is in one of them, unless no combination can contain it. There are about as many
// as the two largest axes have pairs. The same seed gives the same combinations.
std::vector<Combination> CoverPairs(const std::vector<int32_t>& sizes, const Meaningful& meaningful,
                                    uint64_t seed);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_EXECUTOR_PAIRWISE_H_
