#ifndef ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_
#define ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_

#include <array>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// The weights that dropout keeps. A pure function of (seed, sequence, head, row, key), so it is the
// same for any number of workers, layout, strategy and kernel. Immutable.
//
// `sequence` is the index of the sequence in the spec; row i and key j are rows of that sequence.
// The weight of (i, j) under query head h of sequence s is dropped if word j mod 4 of Philox4x32-10
// under
//   key     = PhiloxKey(seed)
//   counter = (⌊j / 4⌋, i, h + 2^31, s)
// is below ⌊rate · 2^32⌋. A kept weight is divided by 1 − rate. The LSE is taken before dropout.
// Formula: docs/reference/numerics.md, "Dropout".
class DropoutRule {
 public:
  explicit DropoutRule(const Dropout& dropout);

  bool Keeps(int64_t sequence, int32_t q_head, int64_t row, int64_t key) const;

  // Words below the threshold are dropped; 0 drops nothing.
  uint32_t threshold() const { return threshold_; }
  std::array<uint32_t, 2> key() const { return key_; }
  // Words 1 to 3 of the counter, which all keys of a row share.
  static std::array<uint32_t, 3> CounterOf(int64_t sequence, int32_t q_head, int64_t row);

 private:
  std::array<uint32_t, 2> key_;
  uint32_t threshold_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_DROPOUT_H_
