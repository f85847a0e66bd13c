#include "attention/spec/tensor_table.h"

#include "attention/spec/bias_and_mask_inputs.h"

namespace annulus {
namespace {

// Bias and bit mask, whose columns are keys, and the LSE offset.
void AddPairInputs(const AttentionSpec& spec, std::vector<TensorInfo>* table) {
  const BiasAndMaskInputs pairs(spec);
  if (pairs.has_bias) {
    table->push_back({TensorId::kBias, RowSpace::kQuery, Direction::kInput, pairs.bias_heads,
                      static_cast<int32_t>(pairs.width), pairs.bias_dtype});
  }
  if (pairs.has_bits) {
    table->push_back({TensorId::kBitMask, RowSpace::kQuery, Direction::kInput, pairs.bit_heads,
                      static_cast<int32_t>(pairs.bit_bytes()), DataType::kBits8});
  }
  if (pairs.has_offset) {
    table->push_back({TensorId::kLseOffset, RowSpace::kQuery, Direction::kInput, spec.q_heads, 1,
                      DataType::kFp32});
  }
}

// The tensors of the spec's forward job come from its state.
void Lend(std::vector<TensorInfo>* table) {
  for (TensorInfo& tensor : *table) {
    const bool own = tensor.id == TensorId::kDOut || tensor.id == TensorId::kDLse;
    if (tensor.direction == Direction::kInput && !own) tensor.direction = Direction::kLent;
  }
}

}  // namespace

int64_t TensorInfo::row_bytes() const {
  return static_cast<int64_t>(heads) * dim * BytesPerElement(dtype);
}

std::vector<TensorInfo> TensorTable(const AttentionSpec& spec) {
  using D = Direction;
  const auto of_queries = [&](TensorId id, D direction, int32_t dim, DataType dtype) {
    return TensorInfo{id, RowSpace::kQuery, direction, spec.q_heads, dim, dtype};
  };
  const auto of_keys = [&](TensorId id, D direction, int32_t dim) {
    return TensorInfo{id, RowSpace::kKey, direction, spec.kv_heads, dim, spec.dtype};
  };
  const int32_t dim = spec.head_dim, value_dim = spec.value_dim();
  std::vector<TensorInfo> table = {of_queries(TensorId::kQ, D::kInput, dim, spec.dtype),
                                   of_keys(TensorId::kK, D::kInput, dim),
                                   of_keys(TensorId::kV, D::kInput, value_dim)};
  const bool forward = spec.operation == Operation::kForward;
  const D of_forward = forward ? D::kOutput : D::kInput;
  table.push_back(of_queries(TensorId::kOut, of_forward, value_dim, spec.output_dtype()));
  table.push_back(of_queries(TensorId::kLse, of_forward, 1, DataType::kFp32));
  if (forward && spec.outputs.max_logit) {
    table.push_back(of_queries(TensorId::kMaxLogit, D::kOutput, 1, DataType::kFp32));
  }
  if (spec.has_lse_rest()) {
    const D kept = spec.outputs.lse_rest ? D::kOutput : D::kKept;
    table.push_back(of_queries(TensorId::kLseRest, forward ? kept : D::kInput, 1, DataType::kFp32));
  }
  AddPairInputs(spec, &table);
  if (forward) return table;
  table.push_back(of_queries(TensorId::kDOut, D::kInput, value_dim, spec.d_out_dtype()));
  if (spec.gradients.d_lse) {
    table.push_back(of_queries(TensorId::kDLse, D::kInput, 1, DataType::kFp32));
  }
  table.push_back(of_queries(TensorId::kDq, D::kOutput, dim, spec.dtype));
  table.push_back(of_keys(TensorId::kDk, D::kOutput, dim));
  table.push_back(of_keys(TensorId::kDv, D::kOutput, value_dim));
  if (!spec.modifiers.sinks.empty()) {
    table.push_back(of_queries(TensorId::kDSink, D::kOutput, 1, DataType::kFp32));
  }
  const BiasAndMaskInputs pairs(spec);
  if (pairs.d_bias) {
    table.push_back({TensorId::kDBias, RowSpace::kQuery, D::kOutput, pairs.bias_heads,
                     static_cast<int32_t>(pairs.width), DataType::kFp32});
  }
  if (spec.uses_state()) Lend(&table);
  return table;
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
      "unspecified", "q",  "k",  "v",    "output", "lse",    "max_logit", "d_out",      "d_lse",
      "dq",          "dk", "dv", "bias", "d_bias", "d_sink", "bit_mask",  "lse_offset", "lse_rest"};
  static_assert(std::size(kNames) == static_cast<size_t>(kLastTensor) + 1);
  const size_t index = static_cast<size_t>(id);
  return index < std::size(kNames) ? kNames[index] : absl::string_view("unknown");
}

}  // namespace annulus
