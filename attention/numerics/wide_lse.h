#ifndef ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_
#define ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_

#include <cmath>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// An LSE in more digits than fp32 has. A row of n equal scores s has the LSE s + log n. From
// |s| = 2^24 on, fp32 rounds most of log n away, and weights made from it, exp(s - LSE), are wrong
// by up to the factor n. So an LSE may have a rest: what its rounding to fp32 took from it.

// Base e. The value is high + low, where low is small beside high.
struct WideLse {
  double high = 0, low = 0;
};

// As a caller has it: `lse` + `rest`, to base 2 or e.
struct RoundedLse {
  float lse = 0, rest = 0;
};

// `given.lse` is finite. Base 2 is converted to 2^-80 of its size.
WideLse NaturalLse(const RoundedLse& given, LseBase base);

// What is to be added to `rounded`, an fp32 number near `lse` in the base; 0 where that is not
// finite.
float RestOf(const WideLse& lse, LseBase base, float rounded);

// The nearest fp32 number and its rest. NaN, with a rest of 0, where fp32 does not hold the LSE.
RoundedLse Round(const WideLse& lse, LseBase base);

// a - b.
inline double Difference(const WideLse& a, const WideLse& b) {
  return (a.high - b.high) + (a.low - b.low);
}

// From this size on an LSE without a rest is too coarse to make weights from: half a unit in its
// last place, 2^-8, moves all weights of its row by 0.4 %, as much as bf16 rounds a weight.
inline constexpr float kCoarseLse = 65536.0f;

// False for what is not finite.
inline bool IsCoarse(float lse) { return std::isfinite(lse) && std::fabs(lse) >= kCoarseLse; }

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_
