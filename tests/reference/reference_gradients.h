#ifndef ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
#define ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "tests/reference/reference_attention.h"

namespace annulus::reference {

// The gradients of attention by loops over pairs, from the formulas of docs/reference/numerics.md.
// Shares no code or type with the product, except the arithmetic of the error budget.

// Inputs of a backward pass besides q, k and v. Any numbers.
struct Upstream {
  std::vector<double> out;    // [query rows, q_heads, value_dim]
  std::vector<double> lse;    // [query rows, q_heads]
  std::vector<double> d_out;  // Shape of out.
  std::vector<double> d_lse;  // Shape of lse, or empty: 0.
  // The rounding error of the LSE, or empty. Implementations get it. Here it only selects that
  // weights are normalised by their own sum instead of `lse`.
  std::vector<double> lse_rest = {};
};

// Shapes of q, k and v. d_sink has each row's contribution to the gradients of its heads' sinks,
// [query rows, q_heads]; empty if the input has none. d_bias has each row's contribution to its
// bias gradient, [query rows, bias_heads, keys of the longest document], 0 for invisible keys.
struct Gradients {
  std::vector<double> dq, dk, dv, d_sink, d_bias;

  // For exact gradients, by head: the additional tolerance of attention/numerics/pair_error.h for
  // small samples.
  std::vector<double> dq_allowed, dk_allowed, dv_allowed, d_sink_allowed, d_bias_allowed;
};

// `bias_heads` of d_bias: 0 (d_bias is empty), 1 (the sum over query heads) or q_heads.
Gradients ExactGradients(const Input& input, const Upstream& upstream, int32_t bias_heads = 0);

// Like ExactGradients, in fp32: weights and dS are rounded to `inputs` before the products with dO,
// k and q. Gradients are rounded once to `inputs`, except d_sink and d_bias. Order: the n-th of
// several. Sums over dimensions begin at different places; every second order processes rows from
// the last one.
struct Order {
  int32_t number = 0, of = 1;
};
Gradients NaiveGradients(const Input& input, const Upstream& upstream, Precision inputs,
                         Order order = {}, int32_t bias_heads = 0);

// The exact output and LSE, rounded as an implementation returns them, and random d_out and (if
// `with_d_lse`) d_lse.
Upstream MakeUpstream(const Input& input, Precision inputs, Precision output, bool with_d_lse,
                      uint64_t seed);

// Sets lse_rest of `up`: the rounding errors of the exact LSE.
void GiveLseRests(const Input& input, Upstream* up);

}  // namespace annulus::reference

#endif  // ANNULUS_TESTS_REFERENCE_REFERENCE_GRADIENTS_H_
