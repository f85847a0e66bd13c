#ifndef ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_
#define ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_

#include <cstdint>
#include <vector>

#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Bytes of the whole job's tensors of a direction. `table` is the TensorTable of `spec`.
int64_t TensorBytes(const std::vector<TensorInfo>& table, const AttentionSpec& spec,
                    Direction direction);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_TENSOR_BYTES_H_
