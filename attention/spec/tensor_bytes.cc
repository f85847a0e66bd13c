#include "attention/spec/tensor_bytes.h"

namespace annulus {

int64_t TensorBytes(const std::vector<TensorInfo>& table, const AttentionSpec& spec,
                    Direction direction) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : table) {
    if (tensor.direction == direction) bytes += tensor.row_bytes() * RowsOf(tensor, spec);
  }
  return bytes;
}

}  // namespace annulus
