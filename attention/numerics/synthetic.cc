#include "attention/numerics/synthetic.h"

#include <cstring>

#include "attention/spec/dtype.h"

namespace annulus {
namespace {

using Words = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

Words CounterOf(TensorId tensor, int64_t row, int32_t head, int32_t dim) {
  const uint32_t row_high = static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32);
  return {static_cast<uint32_t>(tensor) + 256u * row_high, static_cast<uint32_t>(row),
          static_cast<uint32_t>(head), static_cast<uint32_t>(dim)};
}

uint8_t TopByte(const Words& counter, const Key& key) {
  return static_cast<uint8_t>(Philox4x32(counter, key)[0] >> 24);
}

float ValueOf(uint8_t top) { return static_cast<float>(static_cast<int>(top) - 128) / 128.0f; }

// Writes elements of `size` bytes by looking up the 256 possible values.
template <size_t size>
void Fill(const Key& key, const TensorInfo& tensor, Interval rows, std::byte* target) {
  std::array<std::array<std::byte, size>, 256> element;
  for (int top = 0; top < 256; ++top) {
    const float value = ValueOf(static_cast<uint8_t>(top));
    element[top][0] = static_cast<std::byte>(top);
    if (size > 1) ConvertFromFp32(tensor.dtype, &value, 1, element[top].data());
  }
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int32_t head = 0; head < tensor.heads; ++head) {
      Words counter = CounterOf(tensor.id, row, head, 0);
      for (int32_t dim = 0; dim < tensor.dim; ++dim, target += size) {
        counter[3] = static_cast<uint32_t>(dim);
        std::memcpy(target, element[TopByte(counter, key)].data(), size);
      }
    }
  }
}

}  // namespace

float SyntheticValue(uint64_t seed, TensorId tensor, int64_t row, int32_t head, int32_t dim) {
  return ValueOf(TopByte(CounterOf(tensor, row, head, dim), PhiloxKey(seed)));
}

void FillSyntheticRows(uint64_t seed, const TensorInfo& tensor, Interval rows, std::byte* target) {
  if (tensor.dtype == DataType::kBits8) return Fill<1>(PhiloxKey(seed), tensor, rows, target);
  const bool fp32 = tensor.dtype == DataType::kFp32;
  fp32 ? Fill<4>(PhiloxKey(seed), tensor, rows, target)
       : Fill<2>(PhiloxKey(seed), tensor, rows, target);
}

}  // namespace annulus
