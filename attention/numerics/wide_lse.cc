#include "attention/numerics/wide_lse.h"

#include <limits>

namespace annulus {
namespace {

// Each constant has two parts. The first has 29 bits, so its product with an fp32 number is exact
// in fp64.
constexpr double kLog2eHigh = 0x1.7154765p+0, kLog2eLow = 0x1.5c17f0bbbe88p-31;
constexpr double kLn2High = 0x1.62e42ffp-1, kLn2Low = -0x1.718432a1b0e26p-35;

WideLse Scaled(double number, double high, double low) { return {number * high, number * low}; }

WideLse InBase(const WideLse& natural, LseBase base) {
  if (base == LseBase::kE) return natural;
  // The bits of the high part beyond fp32 are multiplied with the low part.
  const double short_high = static_cast<float>(natural.high);
  WideLse wide = Scaled(short_high, kLog2eHigh, kLog2eLow);
  wide.low += ((natural.high - short_high) + natural.low) * (kLog2eHigh + kLog2eLow);
  return wide;
}

float RestIn(const WideLse& wide, float rounded) {
  return std::isfinite(rounded) ? static_cast<float>((wide.high - rounded) + wide.low) : 0.0f;
}

}  // namespace

WideLse NaturalLse(const RoundedLse& given, LseBase base) {
  if (base == LseBase::kE) return {given.lse, given.rest};
  WideLse natural = Scaled(given.lse, kLn2High, kLn2Low);
  natural.low += given.rest * (kLn2High + kLn2Low);
  return natural;
}

float RestOf(const WideLse& lse, LseBase base, float rounded) {
  return RestIn(InBase(lse, base), rounded);
}

RoundedLse Round(const WideLse& lse, LseBase base) {
  const WideLse wide = InBase(lse, base);
  const auto nearest = static_cast<float>(wide.high + wide.low);
  if (!std::isfinite(nearest)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  return {nearest, RestIn(wide, nearest)};
}

}  // namespace annulus
