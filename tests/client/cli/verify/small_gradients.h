#ifndef ANNULUS_TESTS_CLIENT_CLI_VERIFY_SMALL_GRADIENTS_H_
#define ANNULUS_TESTS_CLIENT_CLI_VERIFY_SMALL_GRADIENTS_H_

#include <cstddef>
#include <map>
#include <vector>

#include "attention/spec/dtype.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

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
  spec.sequences[1].kv_len = 10;  // Its first rows see no key.
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

// SmallGradients with everything that changes scores or weights, except ALiBi.
inline AttentionSpec SmallModifiedGradients(DataType dtype) {
  AttentionSpec spec = SmallGradients(dtype);
  spec.modifiers.soft_cap = 2;
  spec.modifiers.sinks = {0.5, -1, 0, 2};
  spec.modifiers.bias = Bias{DataType::kFp16, 4};
  spec.modifiers.lse_offset = true;
  spec.masks[0].bit_mask = true;
  spec.dropout = Dropout{0.4, 7};
  return spec;
}

// Inputs of such a job by tensor, with the reference's output and LSE.
std::map<TensorId, std::vector<std::byte>> SmallInputs(const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_CLI_VERIFY_SMALL_GRADIENTS_H_
