#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_EXPECTED_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_EXPECTED_H_

#include <cstdint>
#include <vector>

#include "tests/attention/schedule/drift_numbers.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {

// Expected outputs by the formulas, for the inputs of drift_numbers.h.
class ExpectedOutputs {
 public:
  explicit ExpectedOutputs(const BuiltCase& built) : built_(built), pairs_(built.spec) {}

  // Packed rows.
  bool Sees(int64_t q_row, int64_t k_row, int32_t head) const;
  // An output at a packed row and head, by section. For a bias gradient: by column.
  std::vector<double> At(BlockKind kind, int64_t row, int32_t head) const;

 private:
  PartialNumbers PartialOf(int64_t q_row, int32_t head) const;
  PairGradients PairOf(int64_t q_row, int32_t head, int64_t k_row) const;
  std::vector<double> BiasGradient(int64_t row, int32_t bias_head) const;

  const BuiltCase& built_;
  const BiasAndMaskInputs pairs_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_DRIFT_EXPECTED_H_
