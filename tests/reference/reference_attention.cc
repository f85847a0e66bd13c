#include "tests/reference/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace annulus::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t FloorOf(int64_t a, int64_t b) {
  return static_cast<int64_t>(
      std::floor(static_cast<long double>(a) / static_cast<long double>(b)));
}

bool Listed(const Range& range, int64_t i, int64_t j) {
  if (i < range.q_begin || i >= range.q_end) return false;
  if (j < range.k_begin || j >= range.k_end) return false;
  if (range.causal && range.k_end - j < range.q_end - i) return false;
  if (range.inverse_causal && j - range.k_begin < i - range.q_begin) return false;
  return true;
}

// The position of a packed query row.
struct Place {
  int64_t document = 0, row = 0, first_key = 0;
};

Place Find(const Input& input, int64_t q_row) {
  Place place;
  place.row = q_row;
  for (const Document& document : input.documents) {
    if (place.row < document.q_len) break;
    place.row -= document.q_len;
    place.first_key += document.kv_len;
    ++place.document;
  }
  return place;
}

const Rule& RuleOf(const Document& document, int32_t q_head) {
  static const Rule kFull;
  if (document.rules.empty()) return kFull;
  return document.rules.size() == 1 ? document.rules[0]
                                    : document.rules[static_cast<size_t>(q_head)];
}

// Floor of the binary logarithm of a finite number. For 0 and subnormal numbers it is less than for
// all others.
int ExponentOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<int>(bits >> 52 & 0x7ff) - 1023;
}

// 2^power. Requires: it is a normal number.
double PowerOfTwo(int power) {
  const uint64_t bits = static_cast<uint64_t>(power + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct Mantissa {
  int bits;          // Mantissa bits, including the hidden one.
  int least_power;   // Exponent of the step between subnormal numbers.
  double overflows;  // Values from here on are rounded to infinity.
};

Mantissa MantissaOf(Precision precision) {
  switch (precision) {
    case Precision::kFp16:
      return {11, -24, 65520.0};
    case Precision::kBf16:
      return {8, -133, std::ldexp(511.0, 119)};
    case Precision::kFp32:
    case Precision::kBf16x3:
      break;
  }
  return {24, -149, std::ldexp(33554431.0, 103)};
}

// The nearest bf16 number, ties to even.
float HighPart(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  const uint32_t odd = bits >> 16 & 1;
  uint32_t high = bits + 0x7fffu + odd;
  if ((high & 0x7f800000u) == 0x7f800000u) high = bits;  // Truncated instead of infinite.
  high &= 0xffff0000u;
  std::memcpy(&value, &high, sizeof(high));
  return value;
}

struct InParts {
  explicit InParts(float value)
      : high(HighPart(value)), low(std::isfinite(value) ? HighPart(value - high) : 0.0f) {}
  const float high, low;
};

// The factors of a product as whole numbers.
struct Whole {
  template <typename Real>
  Real operator()(Real a, Real b) const {
    return a * b;
  }
};
struct OfParts {
  float operator()(float a, float b) const {
    const InParts x(a), y(b);
    return x.high * y.low + x.high * y.high + x.low * y.high;
  }
};

// One row in the arithmetic of Real: double for the exact answer, float for the naive one.
template <typename Real, typename Product = Whole>
class RowInLoops {
 public:
  RowInLoops(const Input& input, int64_t q_row, int32_t q_head)
      : input_(input),
        place_(Find(input, q_row)),
        document_(input.documents[static_cast<size_t>(place_.document)]),
        q_head_(q_head),
        kv_head_(q_head / (input.q_heads / input.kv_heads)),
        q_(input.q.data() + (q_row * input.q_heads + q_head) * input.head_dim) {}

  // `round` is applied to each normalised weight.
  template <typename Round>
  Row Run(Round round) const {
    std::vector<int64_t> keys;
    for (int64_t j = 0; j < document_.kv_len; ++j) {
      if (IsSeen(j)) keys.push_back(j);
    }
    std::vector<Real> scores = Scores(&keys);
    Real max = -std::numeric_limits<Real>::infinity();
    for (const Real score : scores) max = std::max(max, score);
    Row row;
    row.max_logit = static_cast<double>(max);
    const bool has_sink = !input_.sinks.empty();
    const Real sink = has_sink ? static_cast<Real>(input_.sinks[Head()]) : Real(0);
    if (has_sink) max = std::max(max, sink);
    Real sum = has_sink ? std::exp(sink - max) : Real(0);
    for (Real& score : scores) {
      score = std::exp(score - max);
      sum += score;
    }
    std::vector<Real> out(static_cast<size_t>(input_.value_dim), Real(0));
    for (size_t n = 0; n < keys.size(); ++n) {
      const Real kept = Keeps(input_, place_.document, q_head_, place_.row, keys[n])
                            ? Real(1) / static_cast<Real>(1 - input_.dropout_rate)
                            : Real(0);
      const Real weight = round(kept * (scores[n] / sum));
      const double* v = ValueRow(keys[n]);
      double largest = 0;
      for (size_t d = 0; d < out.size(); ++d) {
        out[d] += Product()(weight, static_cast<Real>(v[d]));
        largest = std::max(largest, std::abs(v[d]));
      }
      row.scale += static_cast<double>(weight) * largest;
    }
    row.out.assign(out.begin(), out.end());
    row.lse = sum == Real(0) ? -kInfinity : static_cast<double>(max + std::log(sum));
    if (std::isnan(row.lse)) row.max_logit = row.lse;
    return row;
  }

 private:
  size_t Head() const { return static_cast<size_t>(q_head_); }

  const double* ValueRow(int64_t j) const {
    return input_.v.data() +
           ((place_.first_key + j) * input_.kv_heads + kv_head_) * input_.value_dim;
  }

  const Rule& OfRow() const { return RuleOf(document_, q_head_); }

  double BiasOf(int64_t j) const {
    return input_.bias ? input_.bias(place_.document, q_head_, place_.row, j) : 0.0;
  }

  bool IsSeen(int64_t j) const {
    const Rule& rule = OfRow();
    if (!Sees(rule, document_.q_len, document_.kv_len, place_.row, j)) return false;
    if (rule.bits && !input_.bit(place_.document, q_head_, place_.row, j)) return false;
    return BiasOf(j) != -kInfinity;
  }

  // Removes keys hidden by −infinity from `keys`.
  std::vector<Real> Scores(std::vector<int64_t>* keys) const {
    std::vector<Real> scores;
    size_t kept = 0;
    for (size_t from = 0; from < keys->size(); from += kAtOnce) {
      const size_t count = std::min(kAtOnce, keys->size() - from);
      Real dots[kAtOnce];
      Dots(keys->data() + from, count, dots);
      for (size_t n = 0; n < count; ++n) {
        const int64_t j = (*keys)[from + n];
        const Real score = Score(j, dots[n]);
        if (score == -std::numeric_limits<Real>::infinity()) continue;
        scores.push_back(score);
        (*keys)[kept++] = j;
      }
    }
    keys->resize(kept);
    return scores;
  }

  // Several sums at once, because each addition waits only for the last one of its own sum.
  static constexpr size_t kAtOnce = 8;
  void Dots(const int64_t* keys, size_t count, Real (&dots)[kAtOnce]) const {
    const double* k[kAtOnce];
    for (size_t n = 0; n < kAtOnce; ++n) {
      const int64_t row = place_.first_key + keys[std::min(n, count - 1)];
      k[n] = input_.k.data() + (row * input_.kv_heads + kv_head_) * input_.head_dim;
      dots[n] = 0;
    }
    for (int32_t d = 0; d < input_.head_dim; ++d) {
      const Real q = static_cast<Real>(q_[d]);
      for (size_t n = 0; n < kAtOnce; ++n) dots[n] += Product()(q, static_cast<Real>(k[n][d]));
    }
  }

  Real Score(int64_t j, Real dot) const {
    Real score = static_cast<Real>(input_.scale) * dot;
    if (input_.offset) {
      score += static_cast<Real>(input_.offset(place_.document, q_head_, place_.row));
    }
    if (input_.soft_cap) {
      const Real cap = static_cast<Real>(*input_.soft_cap);
      score = cap * std::tanh(score / cap);
    }
    if (!input_.alibi_slopes.empty()) {
      const int64_t p =
          OfRow().top_left ? place_.row : place_.row + document_.kv_len - document_.q_len;
      score -= static_cast<Real>(input_.alibi_slopes[Head()]) * static_cast<Real>(std::abs(p - j));
    }
    return input_.bias ? score + static_cast<Real>(BiasOf(j)) : score;
  }

  const Input& input_;
  const Place place_;
  const Document& document_;
  const int32_t q_head_, kv_head_;
  const double* const q_;
};

}  // namespace

bool Sees(const Rule& rule, int64_t q_len, int64_t kv_len, int64_t i, int64_t j) {
  const int64_t p = rule.top_left ? i : i + kv_len - q_len;
  const bool order = !rule.causal || j <= p || (rule.prefix && j < *rule.prefix);
  const bool left = !rule.window_left || p - j <= *rule.window_left;
  const bool right = !rule.window_right || j - p <= *rule.window_right;
  const bool chunk = !rule.chunk || FloorOf(j, *rule.chunk) == FloorOf(p, *rule.chunk);
  const bool always = rule.always_visible && j < *rule.always_visible;
  if (!(order && ((left && right && chunk) || always))) return false;
  return rule.ranges.empty() || std::any_of(rule.ranges.begin(), rule.ranges.end(),
                                            [&](const Range& r) { return Listed(r, i, j); });
}

// Philox4x32-10 as in its paper: rounds of two multiplications, with keys increased in between.
bool Keeps(const Input& input, int64_t document, int32_t q_head, int64_t i, int64_t j) {
  if (input.dropout_rate == 0) return true;
  uint32_t x0 = static_cast<uint32_t>(j / 4), x1 = static_cast<uint32_t>(i),
           x2 = 0x80000000u + static_cast<uint32_t>(q_head), x3 = static_cast<uint32_t>(document);
  uint32_t k0 = static_cast<uint32_t>(input.dropout_seed & 0xffffffffu),
           k1 = static_cast<uint32_t>(input.dropout_seed >> 32);
  for (int round = 1; round <= 10; ++round) {
    const uint64_t left = static_cast<uint64_t>(x0) * 3528531795u;
    const uint64_t right = static_cast<uint64_t>(x2) * 3449720151u;
    x0 = static_cast<uint32_t>(right >> 32) ^ x1 ^ k0;
    x2 = static_cast<uint32_t>(left >> 32) ^ x3 ^ k1;
    x1 = static_cast<uint32_t>(right);
    x3 = static_cast<uint32_t>(left);
    k0 += 2654435769u;
    k1 += 3144134277u;
  }
  const uint32_t words[4] = {x0, x1, x2, x3};
  return std::ldexp(words[j % 4], -32) >=
         std::floor(std::ldexp(input.dropout_rate, 32)) * std::ldexp(1.0, -32);
}

int64_t Input::q_rows() const {
  int64_t rows = 0;
  for (const Document& document : documents) rows += document.q_len;
  return rows;
}

int64_t Input::kv_rows() const {
  int64_t rows = 0;
  for (const Document& document : documents) rows += document.kv_len;
  return rows;
}

double UlpOf(Precision precision, double magnitude) {
  if (!std::isfinite(magnitude)) return std::fabs(magnitude);
  const Mantissa mantissa = MantissaOf(precision);
  return PowerOfTwo(std::max(ExponentOf(magnitude) + 1 - mantissa.bits, mantissa.least_power));
}

double (*UlpsOf(Precision precision))(double) {
  if (precision == Precision::kFp16) return [](double at) { return UlpOf(Precision::kFp16, at); };
  if (precision == Precision::kBf16) return [](double at) { return UlpOf(Precision::kBf16, at); };
  return [](double at) { return UlpOf(Precision::kFp32, at); };
}

double RoundTo(Precision precision, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  if (std::fabs(value) >= MantissaOf(precision).overflows) return std::copysign(kInfinity, value);
  const double ulp = UlpOf(precision, value);
  return std::nearbyint(value / ulp) * ulp;
}

Row ExactRow(const Input& input, int64_t q_row, int32_t q_head) {
  return RowInLoops<double>(input, q_row, q_head).Run([](double weight) { return weight; });
}

Row NaiveRow(const Input& input, int64_t q_row, int32_t q_head, Precision inputs,
             Precision output) {
  const auto round = [&](float weight) { return static_cast<float>(RoundTo(inputs, weight)); };
  Row row = inputs == Precision::kBf16x3
                ? RowInLoops<float, OfParts>(input, q_row, q_head).Run(round)
                : RowInLoops<float>(input, q_row, q_head).Run(round);
  for (double& value : row.out) value = RoundTo(output, value);
  return row;
}

Result Exact(const Input& input) {
  Result result;
  for (int64_t row = 0; row < input.q_rows(); ++row) {
    for (int32_t head = 0; head < input.q_heads; ++head) {
      const Row exact = ExactRow(input, row, head);
      result.out.insert(result.out.end(), exact.out.begin(), exact.out.end());
      result.lse.push_back(exact.lse);
    }
  }
  return result;
}

}  // namespace annulus::reference
