#include "attention/numerics/dropout.h"

#include "attention/numerics/philox.h"

namespace annulus {

DropoutRule::DropoutRule(const Dropout& dropout)
    : key_(PhiloxKey(dropout.seed)),
      threshold_(static_cast<uint32_t>(dropout.rate * 4294967296.0)) {}

std::array<uint32_t, 3> DropoutRule::CounterOf(int64_t sequence, int32_t q_head, int64_t row) {
  return {static_cast<uint32_t>(row), static_cast<uint32_t>(q_head) + (uint32_t{1} << 31),
          static_cast<uint32_t>(sequence)};
}

bool DropoutRule::Keeps(int64_t sequence, int32_t q_head, int64_t row, int64_t key) const {
  const std::array<uint32_t, 3> of_row = CounterOf(sequence, q_head, row);
  const auto words =
      Philox4x32({static_cast<uint32_t>(key >> 2), of_row[0], of_row[1], of_row[2]}, key_);
  return words[static_cast<size_t>(key & 3)] >= threshold_;
}

}  // namespace annulus
