#ifndef ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_
#define ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_

#include <cstdint>
#include <vector>

#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Bytes of all tensors of the whole job that have `direction`. `table` must be TensorTable(spec).
int64_t TensorBytes(const std::vector<TensorInfo>& table, const AttentionSpec& spec,
                    Direction direction);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_
