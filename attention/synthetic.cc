#include "attention/synthetic.h"

#include <cstring>

#include "attention/dtype.h"

namespace annulus {
namespace {

using Words = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

Key KeyOf(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

Words CounterOf(TensorId tensor, int64_t row, int32_t head, int32_t dim) {
  const uint32_t row_high = static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32);
  return {static_cast<uint32_t>(tensor) + 256u * row_high, static_cast<uint32_t>(row),
          static_cast<uint32_t>(head), static_cast<uint32_t>(dim)};
}

uint8_t TopByte(const Words& counter, const Key& key) {
  return static_cast<uint8_t>(Philox4x32(counter, key)[0] >> 24);
}

float ValueOf(uint8_t top) { return static_cast<float>(static_cast<int>(top) - 128) / 128.0f; }

// Elements of `size` bytes; the 256 possible ones are looked up.
template <size_t size>
void Fill(const Key& key, const TensorInfo& tensor, Interval rows, std::byte* target) {
  std::array<std::array<std::byte, size>, 256> element;
  for (int top = 0; top < 256; ++top) {
    const float value = ValueOf(static_cast<uint8_t>(top));
    ConvertFromFp32(tensor.dtype, &value, 1, element[top].data());
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

Words Philox4x32(Words counter, Key key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

float SyntheticValue(uint64_t seed, TensorId tensor, int64_t row, int32_t head, int32_t dim) {
  return ValueOf(TopByte(CounterOf(tensor, row, head, dim), KeyOf(seed)));
}

void FillSyntheticRows(uint64_t seed, const TensorInfo& tensor, Interval rows, std::byte* target) {
  const bool fp32 = tensor.dtype == DataType::kFp32;
  fp32 ? Fill<4>(KeyOf(seed), tensor, rows, target) : Fill<2>(KeyOf(seed), tensor, rows, target);
}

}  // namespace annulus
