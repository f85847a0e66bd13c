#include "tests/reference/reference_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/numerics/pair_error.h"
#include "tests/reference/normal_numbers.h"

namespace annulus::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `Round` is applied to weights and dS. Sums are in Real.
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
    if (!kExact) return;
    dk_errors_.resize(input.kv_rows() * input.kv_heads);
    dv_errors_.resize(dk_errors_.size());
    d_bias_errors_.resize(d_bias_.size());
    allowed_.dq_allowed.assign(input.q_heads, 0.0);
    if (!d_sink_.empty()) allowed_.d_sink_allowed.assign(input.q_heads, 0.0);
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
    Gradients gradients = allowed_;
    gradients.dk_allowed = MostOf(dk_errors_, input_.kv_heads, 1);
    gradients.dv_allowed = MostOf(dv_errors_, input_.kv_heads, 1);
    gradients.d_bias_allowed = MostOf(d_bias_errors_, bias_heads_, longest_);
    gradients.dq.assign(dq_.begin(), dq_.end());
    gradients.dk.assign(dk_.begin(), dk_.end());
    gradients.dv.assign(dv_.begin(), dv_.end());
    gradients.d_sink.assign(d_sink_.begin(), d_sink_.end());
    gradients.d_bias.assign(d_bias_.begin(), d_bias_.end());
    return gradients;
  }

 private:
  static constexpr bool kExact = sizeof(Real) == sizeof(double);
  struct At {
    int64_t document, i;
    int32_t head;
    int64_t q_row, k_begin;
  };
  // A weight is exp((score − top) − log_sum).
  struct Normaliser {
    Real top, log_sum;
  };
  struct Score {
    Real value, slope;  // The score, and d score / d (scale · q·k).
    Real capped;        // The score after the soft cap.
  };
  // Indices of a pair in the tensors of its rows.
  struct PairCells {
    int64_t k_cell, bias_at;
    const double *q, *k, *d_out;
  };

  // Deltas are sums over rows, and the values that they are subtracted from are matrix products.
  // Implementations add them in different orders, so this does too: in one order their errors would
  // cancel.
  Real DotFromTheLast(const double* a, const double* b, int32_t size) const {
    Real sum = 0;
    const auto add = [&](int32_t d) { sum += static_cast<Real>(a[d]) * static_cast<Real>(b[d]); };
    const int32_t first = size * order_.number / order_.of;
    for (int32_t d = first - 1; d >= 0; --d) add(d);
    for (int32_t d = size - 1; d >= first; --d) add(d);
    return sum;
  }

  // Dot products of one row with several others at once, because each addition waits only for the
  // last one of its own sum.
  static constexpr size_t kAtOnce = 8;
  using Rows = const double* [kAtOnce];
  template <typename Term, typename Sum>
  static void AddTerms(Term term, int32_t begin, int32_t end, const Rows& rows,
                       Sum (&sums)[kAtOnce]) {
    for (int32_t d = begin; d < end; ++d) {
      for (size_t n = 0; n < kAtOnce; ++n) sums[n] += term(d, rows[n][d]);
    }
  }
  void Dots(const double* a, const Rows& rows, int32_t size, Real (&sums)[kAtOnce]) const {
    const auto term = [a](int32_t d, double b) {
      return static_cast<Real>(a[d]) * static_cast<Real>(b);
    };
    const int32_t first = size * order_.number / order_.of;
    AddTerms(term, first, size, rows, sums);
    AddTerms(term, 0, first, rows, sums);
  }
  static void SumsOfSizes(const double* a, const Rows& rows, int32_t size,
                          double (&sums)[kAtOnce]) {
    AddTerms([a](int32_t d, double b) { return std::abs(a[d] * b); }, 0, size, rows, sums);
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

  static void Raise(double value, double* to) {
    if (std::isfinite(value)) *to = std::max(*to, value);
  }

  // The largest by head, of numbers [rows, heads, dim].
  static std::vector<double> MostOf(const std::vector<ErrorOfSum>& errors, int64_t heads,
                                    int64_t dim) {
    std::vector<double> most(heads, 0.0);
    for (size_t i = 0; i < errors.size(); ++i) {
      Raise(errors[i].Allowed(), &most[i / dim % heads]);
    }
    return most;
  }

  // The part that depends only on the row.
  PairSizes SizesOf(int64_t q_cell) const {
    const int64_t at = q_cell * input_.value_dim;
    PairSizes sizes;
    sizes.head_dim = input_.head_dim;
    sizes.value_dim = input_.value_dim;
    sizes.addends = std::abs(up_.lse[q_cell]);
    sizes.delta = SumOfSizes(&up_.d_out[at], &up_.out[at], input_.value_dim);
    if (!up_.d_lse.empty()) sizes.delta += std::abs(up_.d_lse[q_cell]);
    return sizes;
  }

  void AddAddends(const At& at, const Rule& rule, int64_t j, double capped,
                  PairSizes* sizes) const {
    if (input_.soft_cap) {
      sizes->capped = true;
      sizes->addends += 3 * std::abs(capped);
    }
    if (input_.offset) sizes->addends += std::abs(input_.offset(at.document, at.head, at.i));
    if (input_.bias) sizes->addends += std::abs(input_.bias(at.document, at.head, at.i, j));
    if (!input_.alibi_slopes.empty()) {
      sizes->addends += std::abs(input_.alibi_slopes[at.head] * PlacesAway(at, rule, j));
    }
  }

  // The error of one row of dq: an error of delta affects all keys alike.
  struct RowError {
    ErrorOfSum of_pairs;
    std::vector<double> of_delta;
  };

  void NotePair(const PairSizes& sizes, const PairCells& cells) {
    const PairError error = ErrorOfPair(sizes);
    const double scale = std::abs(input_.scale);
    row_error_.of_pairs.Add(scale * error.d_score * Largest(cells.k, input_.head_dim));
    for (int32_t d = 0; d < input_.head_dim; ++d) {
      row_error_.of_delta[d] += scale * error.delta * cells.k[d];
    }
    dk_errors_[cells.k_cell].Add(scale * (error.d_score + error.delta) *
                                 Largest(cells.q, input_.head_dim));
    dv_errors_[cells.k_cell].Add(error.weight * Largest(cells.d_out, input_.value_dim));
    if (bias_heads_ > 0) d_bias_errors_[cells.bias_at].Add(error.d_bias);
  }

  void NoteRow(const At& at, int64_t cell) {
    Raise(row_error_.of_pairs.Allowed() + 2 * Largest(row_error_.of_delta.data(), input_.head_dim),
          &allowed_.dq_allowed[at.head]);
    if (input_.sinks.empty()) return;
    PairSizes sizes = row_sizes_;
    sizes.weight = std::exp(input_.sinks[at.head] - up_.lse[cell]);
    sizes.difference = sizes.delta;
    sizes.addends += std::abs(input_.sinks[at.head]);
    Raise(2 * ErrorOfPair(sizes).d_bias, &allowed_.d_sink_allowed[at.head]);
  }

  int64_t PlacesAway(const At& at, const Rule& rule, int64_t j) const {
    const Document& document = input_.documents[at.document];
    return std::abs((rule.top_left ? at.i : at.i + document.kv_len - document.q_len) - j);
  }

  Score ScoreOf(const At& at, const Rule& rule, int64_t j, Real dot) const {
    Score score{static_cast<Real>(input_.scale) * dot, Real(1), Real(0)};
    if (input_.offset) {
      score.value += static_cast<Real>(input_.offset(at.document, at.head, at.i));
    }
    if (input_.soft_cap) {
      const Real cap = static_cast<Real>(*input_.soft_cap), t = std::tanh(score.value / cap);
      score = {cap * t, 1 - t * t, cap * t};
    }
    if (!input_.alibi_slopes.empty()) {
      score.value -= static_cast<Real>(input_.alibi_slopes[at.head]) *
                     static_cast<Real>(PlacesAway(at, rule, j));
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
    if (lse == -kInfinity) return;  // The row sees no key.
    const double* d_out = &up_.d_out[cell * input_.value_dim];
    Real delta = DotFromTheLast(d_out, &up_.out[cell * input_.value_dim], input_.value_dim);
    if (!up_.d_lse.empty()) delta -= static_cast<Real>(up_.d_lse[cell]);
    if (kExact) {
      row_error_ = {ErrorOfSum(), std::vector<double>(input_.head_dim, 0.0)};
      row_sizes_ = SizesOf(cell);
    }
    std::vector<int64_t> keys;
    for (int64_t n = 0; n < document.kv_len; ++n) {
      const int64_t j = order_.number % 2 == 0 ? n : document.kv_len - 1 - n;
      if (!Sees(rule, document.q_len, document.kv_len, at.i, j) || Hides(at, rule, j)) continue;
      keys.push_back(j);
    }
    const Normaliser by =
        up_.lse_rest.empty() ? Normaliser{static_cast<Real>(lse), 0} : NormaliserOf(at, rule, keys);
    for (size_t n = 0; n < keys.size(); n += kAtOnce) {
      Pairs(at, rule, keys.data() + n, std::min(kAtOnce, keys.size() - n), by, delta);
    }
    if (kExact) NoteRow(at, cell);
    if (!input_.sinks.empty()) {
      const Real sink = static_cast<Real>(input_.sinks[at.head]) - by.top;
      d_sink_[cell] = -delta * std::exp(sink - by.log_sum);
    }
  }

  // Computed from the row's scores.
  Normaliser NormaliserOf(const At& at, const Rule& rule, const std::vector<int64_t>& keys) const {
    const double* q = &input_.q[(at.q_row * input_.q_heads + at.head) * input_.head_dim];
    std::vector<Real> scores;
    for (const int64_t j : keys) {
      Rows k;
      std::fill(std::begin(k), std::end(k), &input_.k[KeyCell(at, j) * input_.head_dim]);
      Real dots[kAtOnce] = {};
      Dots(q, k, input_.head_dim, dots);
      scores.push_back(ScoreOf(at, rule, j, dots[0]).value);
    }
    if (!input_.sinks.empty()) scores.push_back(static_cast<Real>(input_.sinks[at.head]));
    const Real top = *std::max_element(scores.begin(), scores.end());
    Real sum = 0;
    for (const Real score : scores) sum += std::exp(score - top);
    return {top, std::log(sum)};
  }

  // True if data, not a rule, hides the key.
  bool Hides(const At& at, const Rule& rule, int64_t j) const {
    if (rule.bits && !input_.bit(at.document, at.head, at.i, j)) return true;
    return input_.bias && input_.bias(at.document, at.head, at.i, j) == -kInfinity;
  }

  // Sums over dimensions of a pair.
  struct PairSums {
    Real dot, value_dot;
    double sizes, value_sizes;  // Set if kExact.
  };

  void Pairs(const At& at, const Rule& rule, const int64_t* keys, size_t count,
             const Normaliser& by, Real delta) {
    const int64_t q_cell = at.q_row * input_.q_heads + at.head;
    const double* q = &input_.q[q_cell * input_.head_dim];
    const double* d_out = &up_.d_out[q_cell * input_.value_dim];
    Rows k, v;
    for (size_t n = 0; n < kAtOnce; ++n) {
      const int64_t k_cell = KeyCell(at, keys[std::min(n, count - 1)]);
      k[n] = &input_.k[k_cell * input_.head_dim];
      v[n] = &input_.v[k_cell * input_.value_dim];
    }
    Real dots[kAtOnce] = {}, value_dots[kAtOnce] = {};
    Dots(q, k, input_.head_dim, dots);
    Dots(d_out, v, input_.value_dim, value_dots);
    double sizes[kAtOnce] = {}, value_sizes[kAtOnce] = {};
    if (kExact) {
      SumsOfSizes(q, k, input_.head_dim, sizes);
      SumsOfSizes(d_out, v, input_.value_dim, value_sizes);
    }
    for (size_t n = 0; n < count; ++n) {
      Pair(at, rule, keys[n], {dots[n], value_dots[n], sizes[n], value_sizes[n]}, by, delta);
    }
  }

  int64_t KeyCell(const At& at, int64_t j) const {
    return (at.k_begin + j) * input_.kv_heads + at.head / group_;
  }

  void Pair(const At& at, const Rule& rule, int64_t j, const PairSums& sums, const Normaliser& by,
            Real delta) {
    const int64_t q_cell = at.q_row * input_.q_heads + at.head;
    const int64_t k_cell = KeyCell(at, j);
    const double* q = &input_.q[q_cell * input_.head_dim];
    const double* k = &input_.k[k_cell * input_.head_dim];
    const double* d_out = &up_.d_out[q_cell * input_.value_dim];
    const Score score = ScoreOf(at, rule, j, sums.dot);
    const Real weight = std::exp((score.value - by.top) - by.log_sum);
    const Real kept = Keeps(input_, at.document, at.head, at.i, j)
                          ? Real(1) / static_cast<Real>(1 - input_.dropout_rate)
                          : Real(0);
    const Real product = kept * sums.value_dot;
    const Real d_score = round_(weight * (product - delta) * score.slope);
    const Real scaled = static_cast<Real>(input_.scale) * d_score;
    const int64_t of_bias = at.q_row * bias_heads_ + (bias_heads_ == 1 ? 0 : at.head);
    if (kExact) {
      PairSizes sizes = row_sizes_;
      sizes.weight = weight;
      sizes.kept = kept;
      sizes.slope = score.slope;
      sizes.difference = std::abs(product - delta);
      sizes.product = std::abs(input_.scale) * sums.sizes;
      sizes.value_product = kept * sums.value_sizes;
      AddAddends(at, rule, j, score.capped, &sizes);
      NotePair(sizes, {k_cell, of_bias * longest_ + j, q, k, d_out});
    }
    if (bias_heads_ > 0) d_bias_[of_bias * longest_ + j] += weight * (product - delta);
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
  std::vector<ErrorOfSum> dk_errors_, dv_errors_, d_bias_errors_;
  RowError row_error_;
  PairSizes row_sizes_;
  Gradients allowed_;  // The additional tolerance of dq and d_sink.
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
  NormalNumbers normal(seed);
  const Result exact = Exact(input);
  Upstream up;
  for (const double value : exact.out) up.out.push_back(RoundTo(output, value));
  for (const double value : exact.lse) up.lse.push_back(RoundTo(Precision::kFp32, value));
  for (size_t i = 0; i < exact.out.size(); ++i) {
    up.d_out.push_back(RoundTo(inputs, normal.Next()));
  }
  for (size_t i = 0; i < exact.lse.size() && with_d_lse; ++i) {
    up.d_lse.push_back(RoundTo(Precision::kFp32, normal.Next()));
  }
  return up;
}

void GiveLseRests(const Input& input, Upstream* up) {
  const Result exact = Exact(input);
  up->lse_rest.clear();
  for (size_t i = 0; i < exact.lse.size(); ++i) {
    const double rest = exact.lse[i] - up->lse[i];
    up->lse_rest.push_back(std::isfinite(rest) ? RoundTo(Precision::kFp32, rest) : 0.0);
  }
}

}  // namespace annulus::reference
