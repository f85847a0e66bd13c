#ifndef ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
#define ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// The gradients of attention by loops over pairs, from the formulas of docs/numerics.md; shares no
// code and no type with the product.

// What a backward pass is given beside q, k and v: numbers, however they came about.
struct Upstream {
  std::vector<double> out;    // [query rows, q_heads, value_dim]
  std::vector<double> lse;    // [query rows, q_heads]
  std::vector<double> d_out;  // As out.
  std::vector<double> d_lse;  // As lse, or empty: 0.
};

// As q, k and v; d_sink is what each row adds to the gradients of its heads' sinks, [query rows,
// q_heads], and empty where the input has none.
struct Gradients {
  std::vector<double> dq, dk, dv, d_sink;
};

Gradients ExactGradients(const Input& input, const Upstream& upstream);

// The same in fp32: weights and dS rounded to `inputs` before they meet dO, k and q, and one
// rounding of the gradients to `inputs`. `order` of `orders`: sums over dimensions begin elsewhere,
// and every second order takes rows from the last one on.
Gradients NaiveGradients(const Input& input, const Upstream& upstream, Precision inputs,
                         int32_t order = 0, int32_t orders = 1);

// The exact output and LSE, rounded as an implementation would hand them out, and random d_out and
// (where `with_d_lse`) d_lse.
Upstream MakeUpstream(const Input& input, Precision inputs, Precision output, bool with_d_lse,
                      uint64_t seed);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
