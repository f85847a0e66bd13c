#include "tests/reference/reference_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace annulus::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `Round` is applied to weights and dS; sums are in Real.
template <typename Real, typename Round>
class PairLoops {
 public:
  PairLoops(const Input& input, const Upstream& upstream, Round round, Order order,
            int32_t bias_heads)
      : input_(input),
        up_(upstream),
        round_(round),
        order_(order),
        group_(input.q_heads / input.kv_heads),
        dq_(input.q.size(), Real(0)),
        dk_(input.k.size(), Real(0)),
        dv_(input.v.size(), Real(0)),
        d_sink_(input.sinks.empty() ? 0 : input.q_rows() * input.q_heads, Real(0)),
        bias_heads_(bias_heads) {
    for (const Document& document : input.documents) {
      longest_ = std::max(longest_, document.kv_len);
    }
    d_bias_.assign(input.q_rows() * bias_heads * longest_, Real(0));
    terms_.dq_terms.assign(input.q_heads, 0.0);
    terms_.dk_terms.assign(input.kv_heads, 0.0);
    terms_.d_bias_terms.assign(bias_heads, 0.0);
  }

  Gradients Run() {
    int64_t q_begin = 0, k_begin = 0;
    for (size_t n = 0; n < input_.documents.size(); ++n) {
      const Document& document = input_.documents[n];
      for (int64_t n_row = 0; n_row < document.q_len; ++n_row) {
        const int64_t i = order_.number % 2 == 0 ? n_row : document.q_len - 1 - n_row;
        for (int32_t head = 0; head < input_.q_heads; ++head) {
          Row({static_cast<int64_t>(n), i, head, q_begin + i, k_begin});
        }
      }
      q_begin += document.q_len;
      k_begin += document.kv_len;
    }
    Gradients gradients = terms_;
    gradients.dq.assign(dq_.begin(), dq_.end());
    gradients.dk.assign(dk_.begin(), dk_.end());
    gradients.dv.assign(dv_.begin(), dv_.end());
    gradients.d_sink.assign(d_sink_.begin(), d_sink_.end());
    gradients.d_bias.assign(d_bias_.begin(), d_bias_.end());
    return gradients;
  }

 private:
  struct At {
    int64_t document, i;
    int32_t head;
    int64_t q_row, k_begin;
  };
  struct Score {
    Real value, slope;  // Of the score, and d score / d (scale · q·k).
  };

  // Deltas are sums over rows and what they are taken from are products of matrices: nobody adds
  // both in one order, in which their errors would cancel.
  enum class From { kFirst, kLast };
  Real Dot(const double* a, const double* b, int32_t size, From from = From::kFirst) const {
    Real sum = 0;
    const int32_t first = size * order_.number / order_.of;
    for (int32_t n = 0; n < size; ++n) {
      const int32_t d = (first + (from == From::kFirst ? n : size - 1 - n)) % size;
      sum += static_cast<Real>(a[d]) * static_cast<Real>(b[d]);
    }
    return sum;
  }

  static void Add(Real factor, const double* from, int32_t size, Real* to) {
    for (int32_t d = 0; d < size; ++d) to[d] += factor * static_cast<Real>(from[d]);
  }

  static double Largest(const double* of, int32_t size) {
    double largest = 0;
    for (int32_t d = 0; d < size; ++d) largest = std::max(largest, std::abs(of[d]));
    return largest;
  }

  static double SumOfSizes(const double* a, const double* b, int32_t size) {
    double sum = 0;
    for (int32_t d = 0; d < size; ++d) sum += std::abs(a[d] * b[d]);
    return sum;
  }

  // Of delta, and of what it is made of.
  double SizeOfDelta(int64_t q_cell) const {
    const int64_t at = q_cell * input_.value_dim;
    const double size = SumOfSizes(&up_.d_out[at], &up_.out[at], input_.value_dim);
    return size + (up_.d_lse.empty() ? 0 : std::abs(up_.d_lse[q_cell]));
  }

  // What dS is a difference of, slope apart.
  void NoteTerm(const At& at, double term, double slope, const double* q, const double* k) {
    const auto raise = [](double value, double* to) { *to = std::max(*to, value); };
    const double scaled = std::abs(input_.scale) * slope * term;
    raise(scaled * Largest(k, input_.head_dim), &terms_.dq_terms[at.head]);
    raise(scaled * Largest(q, input_.head_dim), &terms_.dk_terms[at.head / group_]);
    if (bias_heads_ > 0) raise(term, &terms_.d_bias_terms[bias_heads_ == 1 ? 0 : at.head]);
  }

  Score ScoreOf(const At& at, const Rule& rule, int64_t j, Real dot) const {
    const Document& document = input_.documents[at.document];
    Score score{static_cast<Real>(input_.scale) * dot, Real(1)};
    if (input_.offset) {
      score.value += static_cast<Real>(input_.offset(at.document, at.head, at.i));
    }
    if (input_.soft_cap) {
      const Real cap = static_cast<Real>(*input_.soft_cap), t = std::tanh(score.value / cap);
      score = {cap * t, 1 - t * t};
    }
    if (!input_.alibi_slopes.empty()) {
      const int64_t p = rule.top_left ? at.i : at.i + document.kv_len - document.q_len;
      score.value -=
          static_cast<Real>(input_.alibi_slopes[at.head]) * static_cast<Real>(std::abs(p - j));
    }
    if (input_.bias) score.value += static_cast<Real>(input_.bias(at.document, at.head, at.i, j));
    return score;
  }

  void Row(const At& at) {
    const Document& document = input_.documents[at.document];
    static const Rule kFull;
    const Rule& rule = document.rules.empty()       ? kFull
                       : document.rules.size() == 1 ? document.rules[0]
                                                    : document.rules[at.head];
    const int64_t cell = at.q_row * input_.q_heads + at.head;
    const double lse = up_.lse[cell];
    if (lse == -kInfinity) return;  // It saw nothing.
    const double* d_out = &up_.d_out[cell * input_.value_dim];
    Real delta = Dot(d_out, &up_.out[cell * input_.value_dim], input_.value_dim, From::kLast);
    if (!up_.d_lse.empty()) delta -= static_cast<Real>(up_.d_lse[cell]);
    for (int64_t n = 0; n < document.kv_len; ++n) {
      const int64_t j = order_.number % 2 == 0 ? n : document.kv_len - 1 - n;
      if (!Sees(rule, document.q_len, document.kv_len, at.i, j) || Hides(at, rule, j)) continue;
      Pair(at, rule, j, static_cast<Real>(lse), delta);
    }
    if (!input_.sinks.empty()) {
      d_sink_[cell] = -delta * std::exp(static_cast<Real>(input_.sinks[at.head] - lse));
    }
  }

  // By what is data, not rule.
  bool Hides(const At& at, const Rule& rule, int64_t j) const {
    if (rule.bits && !input_.bit(at.document, at.head, at.i, j)) return true;
    return input_.bias && input_.bias(at.document, at.head, at.i, j) == -kInfinity;
  }

  void Pair(const At& at, const Rule& rule, int64_t j, Real lse, Real delta) {
    const int64_t q_cell = at.q_row * input_.q_heads + at.head;
    const int64_t k_cell = (at.k_begin + j) * input_.kv_heads + at.head / group_;
    const double* q = &input_.q[q_cell * input_.head_dim];
    const double* k = &input_.k[k_cell * input_.head_dim];
    const double* v = &input_.v[k_cell * input_.value_dim];
    const double* d_out = &up_.d_out[q_cell * input_.value_dim];
    const Score score = ScoreOf(at, rule, j, Dot(q, k, input_.head_dim));
    const Real weight = std::exp(score.value - lse);
    const Real kept = Keeps(input_, at.document, at.head, at.i, j)
                          ? Real(1) / static_cast<Real>(1 - input_.dropout_rate)
                          : Real(0);
    const Real product = kept * Dot(d_out, v, input_.value_dim);
    const Real d_score = round_(weight * (product - delta) * score.slope);
    const Real scaled = static_cast<Real>(input_.scale) * d_score;
    if (sizeof(Real) == sizeof(double)) {
      const double size = kept * SumOfSizes(d_out, v, input_.value_dim);
      NoteTerm(at, weight * std::max(size, SizeOfDelta(q_cell)), score.slope, q, k);
    }
    if (bias_heads_ > 0) {
      const int64_t of_bias = at.q_row * bias_heads_ + (bias_heads_ == 1 ? 0 : at.head);
      d_bias_[of_bias * longest_ + j] += weight * (product - delta);
    }
    Add(round_(kept * weight), d_out, input_.value_dim, &dv_[k_cell * input_.value_dim]);
    Add(scaled, k, input_.head_dim, &dq_[q_cell * input_.head_dim]);
    Add(scaled, q, input_.head_dim, &dk_[k_cell * input_.head_dim]);
  }

  const Input& input_;
  const Upstream& up_;
  const Round round_;
  const Order order_;
  const int32_t group_;
  std::vector<Real> dq_, dk_, dv_, d_sink_, d_bias_;
  const int32_t bias_heads_;
  int64_t longest_ = 0;
  Gradients terms_;  // These alone.
};

template <typename Real, typename Round>
Gradients Loop(const Input& input, const Upstream& upstream, Round round, Order order,
               int32_t bias_heads) {
  return PairLoops<Real, Round>(input, upstream, round, order, bias_heads).Run();
}

}  // namespace

Gradients ExactGradients(const Input& input, const Upstream& upstream, int32_t bias_heads) {
  return Loop<double>(
      input, upstream, [](double value) { return value; }, {}, bias_heads);
}

Gradients NaiveGradients(const Input& input, const Upstream& upstream, Precision inputs,
                         Order order, int32_t bias_heads) {
  const auto round = [inputs](float value) {
    return inputs == Precision::kFp32 ? value : static_cast<float>(RoundTo(inputs, value));
  };
  Gradients gradients = Loop<float>(input, upstream, round, order, bias_heads);
  for (auto* tensor : {&gradients.dq, &gradients.dk, &gradients.dv}) {
    for (double& value : *tensor) value = RoundTo(inputs, value);
  }
  return gradients;
}

Upstream MakeUpstream(const Input& input, Precision inputs, Precision output, bool with_d_lse,
                      uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.0, 1.0);
  const Result exact = Exact(input);
  Upstream up;
  for (const double value : exact.out) up.out.push_back(RoundTo(output, value));
  for (const double value : exact.lse) up.lse.push_back(RoundTo(Precision::kFp32, value));
  for (size_t i = 0; i < exact.out.size(); ++i) {
    up.d_out.push_back(RoundTo(inputs, normal(random)));
  }
  for (size_t i = 0; i < exact.lse.size() && with_d_lse; ++i) {
    up.d_lse.push_back(RoundTo(Precision::kFp32, normal(random)));
  }
  return up;
}

}  // namespace annulus::reference
