#ifndef ANNULUS_EXAMPLES_TENSORS_H_
#define ANNULUS_EXAMPLES_TENSORS_H_

#include <cstddef>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace annulus {

// Random numbers, and the bytes of a vector as the client takes them.
inline std::vector<float> Normal(size_t count, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(bits);
  return values;
}
inline absl::Span<const std::byte> Bytes(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}
inline absl::Span<std::byte> Bytes(std::vector<float>* values) {
  return {reinterpret_cast<std::byte*>(values->data()), values->size() * sizeof(float)};
}

}  // namespace annulus

#endif  // ANNULUS_EXAMPLES_TENSORS_H_
