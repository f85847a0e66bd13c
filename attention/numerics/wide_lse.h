#ifndef ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_
#define ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_

#include <cmath>
#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// An LSE with more digits than fp32 has. A row of n equal scores s has the LSE s + log n. From |s|
// = 2^24 on, fp32 rounds most of log n away, and weights exp(s - LSE) made from it are wrong by up
// to a factor of n. So an LSE may have a rest: what rounding to fp32 removed from it.

// A natural LSE: high + low, where low is small compared with high.
struct WideLse {
  double high = 0, low = 0;
};

// The LSE of a caller: `lse` + `rest`, to base 2 or e.
struct RoundedLse {
  float lse = 0, rest = 0;
};

// Converts to base e. `given.lse` must be finite. The conversion from base 2 has a relative error
// of 2^-80.
WideLse NaturalLse(const RoundedLse& given, LseBase base);

// `lse` in the base minus `rounded`, an fp32 number near it; 0 if `rounded` is not finite.
float RestOf(const WideLse& lse, LseBase base, float rounded);

// The nearest fp32 number and its rest. (NaN, 0) if fp32 cannot hold the LSE.
RoundedLse Round(const WideLse& lse, LseBase base);

// a - b.
inline double Difference(const WideLse& a, const WideLse& b) {
  return (a.high - b.high) + (a.low - b.low);
}

// From this magnitude on, an LSE without a rest is too coarse to make weights from. Half a unit in
// its last place, 2^-8, changes all weights of its row by 0.4 %, as much as rounding a weight to
// bf16.
inline constexpr float kCoarseLse = 65536.0f;

// False for values that are not finite.
inline bool IsCoarse(float lse) { return std::isfinite(lse) && std::fabs(lse) >= kCoarseLse; }

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_NUMERICS_WIDE_LSE_H_
