#ifndef ANNULUS_TESTS_CLIENT_SMALL_GRADIENTS_H_
#define ANNULUS_TESTS_CLIENT_SMALL_GRADIENTS_H_

#include "attention/dtype.h"
#include "attention/spec.h"

namespace annulus {

// Gradients of two causal sequences with grouped heads.
inline AttentionSpec SmallGradients(DataType dtype) {
  AttentionSpec spec;
  spec.operation = Operation::kGradients;
  spec.dtype = dtype;
  spec.q_heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 12;
  spec.head_dim_v = 8;
  spec.sequences.resize(2);
  spec.sequences[0].q_len = 30;
  spec.sequences[0].kv_len = 40;
  spec.sequences[1].q_len = 25;
  spec.sequences[1].kv_len = 10;  // Its first rows see nothing.
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_SMALL_GRADIENTS_H_
