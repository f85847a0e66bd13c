#include "tests/client/cli/verify/small_gradients.h"

#include "tests/reference/from_spec.h"
#include "tests/reference/reference_gradients.h"

namespace annulus {

std::map<TensorId, std::vector<std::byte>> SmallInputs(const AttentionSpec& spec) {
  const reference::Precision precision = reference::PrecisionOf(spec.dtype),
                             output = reference::PrecisionOf(spec.output_dtype());
  reference::Input input = reference::InputOf(spec);
  FillNormal(3, precision, 1.0, &input);
  FillPairs(6, spec, &input);
  const reference::Upstream up = MakeUpstream(input, precision, output, false, 4);
  std::map<TensorId, std::vector<std::byte>> inputs;
  inputs[TensorId::kQ] = reference::BytesOf(precision, input.q);
  inputs[TensorId::kK] = reference::BytesOf(precision, input.k);
  inputs[TensorId::kV] = reference::BytesOf(precision, input.v);
  inputs[TensorId::kOut] = reference::BytesOf(output, up.out);
  inputs[TensorId::kLse] = reference::BytesOf(reference::PrecisionOf(DataType::kFp32), up.lse);
  inputs[TensorId::kBias] = BiasBytes(spec, input);
  inputs[TensorId::kBitMask] = BitBytes(spec, input);
  inputs[TensorId::kLseOffset] = OffsetBytes(spec, input);
  return inputs;
}

}  // namespace annulus
