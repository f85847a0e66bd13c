#ifndef ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_
#define ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_

#include <array>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// Which weights dropout keeps: a pure function of (seed, sequence, head, row, key), the same for
// any number of workers, layout, strategy and kernel. Rows and keys are those of the sequence, so
// the weight of query row i and key row j under query head h of sequence s (its index in the spec)
// is dropped where word j mod 4 of Philox4x32-10 under
//   key     = PhiloxKey(seed)
//   counter = (⌊j / 4⌋, i, h + 2^31, s)
// is below ⌊rate · 2^32⌋. What is kept is divided by 1 − rate; the LSE is taken before.
class DropoutRule {
 public:
  explicit DropoutRule(const Dropout& dropout);

  bool Keeps(int64_t sequence, int32_t q_head, int64_t row, int64_t key) const;

  // Words below are dropped. 0: nothing is.
  uint32_t threshold() const { return threshold_; }
  std::array<uint32_t, 2> key() const { return key_; }
  // Words 1 to 3 of the counter of a row.
  static std::array<uint32_t, 3> CounterOf(int64_t sequence, int32_t q_head, int64_t row);

 private:
  std::array<uint32_t, 2> key_;
  uint32_t threshold_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_
