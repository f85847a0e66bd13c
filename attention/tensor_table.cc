#include "attention/tensor_table.h"

namespace annulus {

int64_t TensorInfo::row_bytes() const {
  return static_cast<int64_t>(heads) * dim * BytesPerElement(dtype);
}

std::vector<TensorInfo> TensorTable(const AttentionSpec& spec) {
  if (spec.operation != Operation::kForward) return {};
  const int32_t value_dim = spec.value_dim();
  return {
      {TensorId::kQ, RowSpace::kQuery, Direction::kInput, spec.q_heads, spec.head_dim, spec.dtype},
      {TensorId::kK, RowSpace::kKey, Direction::kInput, spec.kv_heads, spec.head_dim, spec.dtype},
      {TensorId::kV, RowSpace::kKey, Direction::kInput, spec.kv_heads, value_dim, spec.dtype},
      {TensorId::kOut, RowSpace::kQuery, Direction::kOutput, spec.q_heads, value_dim,
       spec.output_dtype()},
      {TensorId::kLse, RowSpace::kQuery, Direction::kOutput, spec.q_heads, 1, DataType::kFp32},
  };
}

const TensorInfo* FindTensor(const std::vector<TensorInfo>& table, TensorId id) {
  for (const TensorInfo& info : table) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

int64_t RowsOf(const TensorInfo& tensor, const AttentionSpec& spec) {
  return tensor.rows == RowSpace::kQuery ? spec.q_rows() : spec.kv_rows();
}

absl::string_view TensorName(TensorId id) {
  constexpr absl::string_view kNames[] = {
      "unspecified", "q",  "k",  "v",  "output", "lse",    "max_logit", "d_output",
      "d_lse",       "dq", "dk", "dv", "bias",   "d_bias", "d_sink",    "bit_mask"};
  const size_t index = static_cast<size_t>(id);
  return index < std::size(kNames) ? kNames[index] : absl::string_view("unknown");
}

}  // namespace annulus
