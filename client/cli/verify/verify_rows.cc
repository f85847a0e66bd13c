#include "client/cli/verify/verify_rows.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace annulus {
namespace {

// The ulp at a magnitude of a type with `bits` explicit bits of mantissa and a smallest number of
// 2^`least`.
template <int bits, int least>
double Ulp(double magnitude) {
  return std::ldexp(1.0, magnitude == 0 ? least : std::max(std::ilogb(magnitude) - bits, least));
}

}  // namespace

const std::byte* HeadTensors::data(TensorId id) const {
  const auto found = tensors_.find(id);
  return found == tensors_.end() ? nullptr : found->second;
}

std::vector<float> HeadRows(const TensorInfo& tensor, const std::byte* base, int32_t head,
                            int64_t begin, int64_t count) {
  std::vector<float> values(count * tensor.dim);
  const int64_t head_bytes = tensor.row_bytes() / tensor.heads;
  for (int64_t row = 0; row < count; ++row) {
    ConvertToFp32(tensor.dtype, base + (begin + row) * tensor.row_bytes() + head * head_bytes,
                  tensor.dim, values.data() + row * tensor.dim);
  }
  return values;
}

float RoundTo(DataType dtype, float value) {
  if (dtype == DataType::kBf16) return Bf16ToFp32(Fp32ToBf16(value));
  if (dtype == DataType::kFp16) return Fp16ToFp32(Fp32ToFp16(value));
  return value;
}

double (*UlpOf(DataType dtype))(double) {
  if (dtype == DataType::kFp16) return Ulp<10, -24>;
  return dtype == DataType::kBf16 ? Ulp<7, -133> : Ulp<23, -149>;
}

std::vector<int64_t> PickRows(int64_t rows, int64_t count, uint64_t seed) {
  std::set<int64_t> picked;
  std::mt19937_64 random(seed);
  if (count >= rows) {
    for (int64_t row = 0; row < rows; ++row) picked.insert(row);
  }
  while (static_cast<int64_t>(picked.size()) < std::min(count, rows))
    picked.insert(random() % rows);
  return {picked.begin(), picked.end()};
}

}  // namespace annulus
