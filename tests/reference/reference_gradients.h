#ifndef ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
#define ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// The gradients of attention by loops over pairs, from the formulas of docs/reference/numerics.md;
// shares no code and no type with the product, but for the arithmetic of the error budget.

// What a backward pass is given beside q, k and v: numbers, however they came about.
struct Upstream {
  std::vector<double> out;    // [query rows, q_heads, value_dim]
  std::vector<double> lse;    // [query rows, q_heads]
  std::vector<double> d_out;  // As out.
  std::vector<double> d_lse;  // As lse, or empty: 0.
  // What rounding took from the LSE, or empty. Implementations get it; here it only says that
  // weights are normalised by their own sum, without a look at `lse`.
  std::vector<double> lse_rest = {};
};

// As q, k and v; d_sink is what each row adds to the gradients of its heads' sinks, [query rows,
// q_heads], and empty where the input has none. d_bias is what each row adds to the gradient of its
// bias, [query rows, bias_heads, keys of the longest document], 0 where a row does not see.
struct Gradients {
  std::vector<double> dq, dk, dv, d_sink, d_bias;

  // Of exact ones, by head of each: the most that attention/numerics/pair_error.h allows one of few
  // to be off besides.
  std::vector<double> dq_allowed, dk_allowed, dv_allowed, d_sink_allowed, d_bias_allowed;
};

// `bias_heads`: of d_bias: 0 (d_bias is empty), 1 (the sum over query heads) or q_heads.
Gradients ExactGradients(const Input& input, const Upstream& upstream, int32_t bias_heads = 0);

// The same in fp32: weights and dS rounded to `inputs` before they meet dO, k and q, and one
// rounding of the gradients to `inputs`, but of d_sink and d_bias. Order: the n-th of several, in
// which sums over dimensions begin elsewhere; every second one takes rows from the last one on.
struct Order {
  int32_t number = 0, of = 1;
};
Gradients NaiveGradients(const Input& input, const Upstream& upstream, Precision inputs,
                         Order order = {}, int32_t bias_heads = 0);

// The exact output and LSE, rounded as an implementation would hand them out, and random d_out and
// (where `with_d_lse`) d_lse.
Upstream MakeUpstream(const Input& input, Precision inputs, Precision output, bool with_d_lse,
                      uint64_t seed);

// Gives `up` the rests of its LSE: what rounding took from the exact ones.
void GiveLseRests(const Input& input, Upstream* up);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
