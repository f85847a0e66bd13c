#include "client/cli/verify/verify_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/numerics/dropout.h"
#include "attention/numerics/error_budget.h"
#include "attention/numerics/pair_error.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "client/cli/verify/all_threads.h"
#include "client/cli/verify/job_rows.h"
#include "client/cli/verify/row_norms.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {
namespace {

constexpr double kMostProducts = 0x1p35;
constexpr float kSmallLse = 64;

bool AllScoresAreFew(const JobRows& job) {
  const AttentionSpec& spec = job.spec();
  double pairs = 0;
  for (int32_t head = 0; head < spec.q_heads; ++head) {
    pairs += static_cast<double>(job.mask().Area(head, {0, spec.q_rows()}, {0, spec.kv_rows()}));
  }
  return pairs * spec.head_dim <= kMostProducts;
}

bool SeesOneOf(const Intervals& seen, const std::vector<int64_t>& keys) {
  return std::any_of(seen.begin(), seen.end(), [&keys](const Interval& interval) {
    const auto next = std::lower_bound(keys.begin(), keys.end(), interval.begin);
    return next != keys.end() && *next < interval.end;
  });
}

RowNorm OfLse(float lse) { return {{lse, 1}, {lse, 1}}; }

}  // namespace

std::vector<std::vector<RowNorm>> GradientNorms(const JobRows& job, int32_t kv_head,
                                                const std::vector<int64_t>& q_rows,
                                                const std::vector<int64_t>& k_rows, GivenLse use) {
  const int32_t group = job.spec().q_heads / job.spec().kv_heads, first = kv_head * group;
  const int64_t rows = job.spec().q_rows();
  std::vector<std::vector<RowNorm>> norms(group, std::vector<RowNorm>(rows));
  std::vector<std::vector<float>> lse;
  for (int32_t n = 0; n < group; ++n) {
    lse.push_back(job.tensors().Rows(TensorId::kLse, first + n, 0, rows));
  }
  const bool all = AllScoresAreFew(job);
  std::vector<RowCell> cells;
  for (int64_t row = 0; row < rows; ++row) {
    const bool picked = std::binary_search(q_rows.begin(), q_rows.end(), row);
    for (int32_t n = 0; n < group; ++n) {
      if (!picked && !SeesOneOf(job.mask().VisiblePacked(first + n, row), k_rows)) continue;
      const float given = lse[n][row];
      const bool stands = use == GivenLse::kTaken || !std::isfinite(given) ||
                          (!all && !picked && std::abs(given) <= kSmallLse);
      if (stands) norms[n][row] = OfLse(given);
      if (!stands) cells.push_back({first + n, row});
    }
  }
  const std::vector<RowNorm> made = NormsOf(job, cells, /*naive=*/true);
  for (size_t i = 0; i < cells.size(); ++i) norms[cells[i].head - first][cells[i].row] = made[i];
  return norms;
}

int64_t OrdersOf(int64_t judged) {
  constexpr int64_t kSteady = 4096, kMaxOrders = 8;
  return std::clamp<int64_t>(kSteady / std::max<int64_t>(judged, 1), 1, kMaxOrders);
}

double SumOfSizes(const float* a, const float* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::abs(static_cast<double>(a[i]) * b[i]);
  return sum;
}

void BiasSums::Begin(size_t rows) {
  orders = OrdersOf(static_cast<int64_t>(rows) * width);
  exact.assign(rows * width, 0.0);
  sum_errors.assign(rows * width, ErrorOfSum());
  naive.assign(orders, std::vector<float>(rows * width, 0.0f));
}

void BiasSums::Judge(size_t row, const std::vector<float>& answer, HeadErrors* head) {
  for (int64_t i = 0; i < width; ++i) head->AllowOfFew(Error(row)[i].Allowed());
  for (int64_t n = 0; n < orders; ++n) {
    for (int64_t i = 0; i < width; ++i) head->AddOutput(Exact(row)[i], Naive(n, row)[i], answer[i]);
  }
}

namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// All query rows of one query head, and all key rows of its key/value head.
struct HeadData {
  int32_t head = 0;
  std::vector<float> q, out, d_out, lse, d_lse, k, v;
  std::vector<RowNorm> norms;  // Set for the query rows that are needed.

  // The weight of a score.
  template <typename Real>
  Real Weight(int64_t row, Real score) const {
    if constexpr (sizeof(Real) == sizeof(float)) return norms[row].NaiveWeightOf(score);
    if constexpr (sizeof(Real) == sizeof(double)) return norms[row].exact.WeightOf(score);
  }
};

class GradientVerifier {
 public:
  GradientVerifier(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
      : spec_(spec),
        job_(spec, tensors),
        tensors_(job_.tensors()),
        mask_(job_.mask()),
        pairs_(job_.pairs()),
        dim_(spec.head_dim),
        value_dim_(spec.value_dim()) {
    if (spec.dropout) dropout_.emplace(*spec.dropout);
    if (!spec.modifiers.sinks.empty()) d_sink_.resize(spec.q_heads);
    if (BiasAndMaskInputs(spec).d_bias)
      bias_.emplace(BiasAndMaskInputs(spec).bias_heads, BiasAndMaskInputs(spec).width);
  }

  GradientReport Run(int64_t count, uint64_t seed, GivenLse lse) {
    const std::vector<int64_t> q_rows = PickRows(spec_.q_rows(), count, seed);
    const std::vector<int64_t> k_rows = PickRows(spec_.kv_rows(), count, seed + 1);
    const auto picked = static_cast<int64_t>(std::max(q_rows.size(), k_rows.size()));
    orders_ = OrdersOf(picked);
    std::vector<HeadErrors> dq(spec_.q_heads), dk(spec_.kv_heads), dv(spec_.kv_heads);
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    if (bias_) bias_->Begin(q_rows.size());
    for (int32_t kv_head = 0; kv_head < spec_.kv_heads; ++kv_head) {
      std::vector<HeadData> heads;
      for (int32_t n = 0; n < group; ++n) heads.push_back(Load(kv_head * group + n, kv_head));
      auto norms = GradientNorms(job_, kv_head, q_rows, k_rows, lse);
      for (int32_t n = 0; n < group; ++n) heads[n].norms = std::move(norms[n]);
      for (const HeadData& head : heads) {
        JudgeQueries(head, q_rows, &dq[head.head]);
        if (bias_) AddBiasGradients(head, q_rows);
      }
      JudgeKeys(heads, kv_head, k_rows, &dk[kv_head], &dv[kv_head]);
    }
    GradientReport report;
    report.q_rows = static_cast<int64_t>(q_rows.size());
    report.k_rows = static_cast<int64_t>(k_rows.size());
    Note(TensorId::kDq, dq, report.q_rows, &report);
    Note(TensorId::kDk, dk, report.k_rows, &report);
    Note(TensorId::kDv, dv, report.k_rows, &report);
    if (bias_) Note(TensorId::kDBias, bias_->errors, report.q_rows, &report);
    if (!d_sink_.empty()) Note(TensorId::kDSink, d_sink_, report.q_rows, &report);
    return report;
  }

 private:
  HeadData Load(int32_t head, int32_t kv_head) const {
    const int64_t q_rows = spec_.q_rows(), kv_rows = spec_.kv_rows();
    HeadData data;
    data.head = head;
    data.q = tensors_.Rows(TensorId::kQ, head, 0, q_rows);
    data.out = tensors_.Rows(TensorId::kOut, head, 0, q_rows);
    data.d_out = tensors_.Rows(TensorId::kDOut, head, 0, q_rows);
    data.lse = tensors_.Rows(TensorId::kLse, head, 0, q_rows);
    data.d_lse.assign(q_rows, 0.0f);
    if (spec_.gradients.d_lse) data.d_lse = tensors_.Rows(TensorId::kDLse, head, 0, q_rows);
    data.k = tensors_.Rows(TensorId::kK, kv_head, 0, kv_rows);
    data.v = tensors_.Rows(TensorId::kV, kv_head, 0, kv_rows);
    return data;
  }

  template <typename Real>
  struct Share {
    Real weight = 0, d_score = 0;  // d_score includes the scale.
    Real d_bias = 0;
    // Only for double. d_score and delta include the scale.
    PairError error;
  };
  // The gradient of one row, and its additional allowance if few rows are judged. For key rows: dk,
  // then dv.
  struct Gradient {
    std::vector<double> values;
    double allowed = 0, dv_allowed = 0;
  };

  // Rounds to the job's type if Real is float, as the naive computation does.
  template <typename Real>
  Real Rounded(Real value) const {
    return sizeof(Real) == sizeof(float) ? RoundTo(spec_.dtype, static_cast<float>(value)) : value;
  }

  // The factor of dropout.
  double KeptOf(int32_t head, int64_t row, int64_t key) const {
    if (!dropout_) return 1;
    const int64_t sequence = mask_.SequenceOfQuery(row);
    const bool kept = dropout_->Keeps(sequence, head, row - mask_.QueryBegin(sequence),
                                      key - mask_.KeyBegin(sequence));
    return kept ? 1 / (1 - spec_.dropout->rate) : 0;
  }

  template <typename Real>
  Real DeltaOf(const HeadData& data, int64_t row, const Order& order) const {
    const Order backwards{order.number + 1, order.of + 1};
    return Dot<Real>(&data.d_out[row * value_dim_], &data.out[row * value_dim_], value_dim_,
                     backwards) -
           static_cast<Real>(data.d_lse[row]);
  }

  // The terms of a row that do not depend on the key.
  PairSizes SizesOf(const HeadData& data, int64_t row) const {
    PairSizes sizes;
    sizes.head_dim = dim_;
    sizes.value_dim = value_dim_;
    sizes.addends = std::abs(static_cast<double>(data.lse[row]));
    sizes.delta =
        SumOfSizes(&data.d_out[row * value_dim_], &data.out[row * value_dim_], value_dim_) +
        std::abs(static_cast<double>(data.d_lse[row]));
    return sizes;
  }

  // Adds the terms of the pair's score and product.
  PairSizes SizesOf(const HeadData& data, int64_t row, int64_t key, double kept) const {
    PairSizes sizes = SizesOf(data, row);
    sizes.kept = kept;
    sizes.product = std::abs(spec_.scale_or_default()) *
                    SumOfSizes(&data.q[row * dim_], &data.k[key * dim_], dim_);
    sizes.value_product =
        kept * SumOfSizes(&data.d_out[row * value_dim_], &data.v[key * value_dim_], value_dim_);
    sizes.addends += std::abs(pairs_.OffsetOf(data.head, row)) +
                     std::abs(static_cast<double>(pairs_.BiasAt(data.head, row, key)));
    if (spec_.modifiers.alibi_slopes.empty()) return sizes;
    sizes.addends += std::abs(static_cast<double>(spec_.modifiers.alibi_slopes[data.head])) *
                     std::abs(mask_.Position(data.head, row) - key);
    return sizes;
  }

  double SinkError(const HeadData& data, int64_t row) const {
    PairSizes sizes = SizesOf(data, row);
    const double sink = spec_.modifiers.sinks[data.head];
    sizes.weight = data.Weight<double>(row, sink);
    sizes.difference = sizes.delta;
    sizes.addends += std::abs(sink);
    return ErrorOfPair(sizes).d_bias;
  }

  template <typename Real>
  double SinkGradient(const HeadData& data, int64_t row, const Order& order) const {
    if (data.lse[row] == kMinusInf) return 0;
    const Real sink = static_cast<Real>(spec_.modifiers.sinks[data.head]);
    return -data.Weight<Real>(row, sink) * DeltaOf<Real>(data, row, order);
  }

  // The formulas of docs/reference/numerics.md, "Gradients".
  template <typename Real>
  Share<Real> ShareOf(const HeadData& data, int64_t row, int64_t key, const Order& order) const {
    if (data.lse[row] == kMinusInf) return {};
    const float* d_out = &data.d_out[row * value_dim_];
    const Real delta = DeltaOf<Real>(data, row, order);
    const Real scale = static_cast<Real>(spec_.scale_or_default());
    Real score = scale * Dot<Real>(&data.q[row * dim_], &data.k[key * dim_], dim_, order) +
                 static_cast<Real>(pairs_.OffsetOf(data.head, row));
    Real slope = 1, capped = 0;
    if (spec_.modifiers.soft_cap) {
      const Real cap = static_cast<Real>(*spec_.modifiers.soft_cap), t = std::tanh(score / cap);
      score = capped = cap * t;
      slope = 1 - t * t;
    }
    if (!spec_.modifiers.alibi_slopes.empty()) {
      const auto away = static_cast<Real>(std::abs(mask_.Position(data.head, row) - key));
      score -= static_cast<Real>(spec_.modifiers.alibi_slopes[data.head]) * away;
    }
    score += static_cast<Real>(pairs_.BiasAt(data.head, row, key));
    const Real weight = data.Weight<Real>(row, score);
    const Real kept = static_cast<Real>(KeptOf(data.head, row, key));
    const Real product = kept * Dot<Real>(d_out, &data.v[key * value_dim_], value_dim_, order);
    Share<Real> share;
    share.weight = Rounded<Real>(kept * weight);
    share.d_score = scale * Rounded<Real>(weight * (product - delta) * slope);
    share.d_bias = weight * (product - delta);
    if (sizeof(Real) == sizeof(float)) return share;
    PairSizes sizes = SizesOf(data, row, key, kept);
    sizes.weight = weight;
    sizes.slope = slope;
    sizes.capped = spec_.modifiers.soft_cap.has_value();
    sizes.addends += 3 * std::abs(capped);
    sizes.difference = std::abs(product - delta);
    share.error = ErrorOfPair(sizes);
    share.error.d_score *= std::abs(scale);
    share.error.delta *= std::abs(scale);
    return share;
  }

  template <typename Real>
  static void Add(Real factor, const float* from, int64_t size, std::vector<Real>* to) {
    for (int64_t i = 0; i < size; ++i) (*to)[i] += factor * static_cast<Real>(from[i]);
  }

  template <typename Real>
  Gradient QueryGradient(const HeadData& data, int64_t row, const Order& order) const {
    const std::vector<int64_t> keys = job_.KeysOf(data.head, row);
    const auto size = static_cast<int64_t>(keys.size());
    std::vector<Real> sum(dim_, Real(0)), of_delta(dim_, Real(0));
    ErrorOfSum error;
    for (int64_t n = 0; n < size; ++n) {
      const int64_t key = keys[order.At(n, size)];
      const Share<Real> share = ShareOf<Real>(data, row, key, order);
      error.Add(share.error.d_score * Largest(&data.k[key * dim_], dim_));
      Add(static_cast<Real>(share.error.delta), &data.k[key * dim_], dim_, &of_delta);
      Add(share.d_score, &data.k[key * dim_], dim_, &sum);
    }
    return {{sum.begin(), sum.end()}, error.Allowed() + 2 * Largest(of_delta.data(), dim_)};
  }

  // Returns dk, then dv.
  template <typename Real>
  Gradient KeyGradients(const std::vector<HeadData>& heads, int64_t key, const Order& order) const {
    const int64_t sequence = mask_.SequenceOfKey(key);
    const int64_t begin = mask_.QueryBegin(sequence), size = mask_.QueryBegin(sequence + 1) - begin;
    std::vector<Real> dk(dim_, Real(0)), dv(value_dim_, Real(0));
    ErrorOfSum dk_error, dv_error;
    for (const HeadData& data : heads) {
      for (int64_t n = 0; n < size; ++n) {
        const int64_t row = begin + order.At(n, size);
        if (!job_.Sees(data.head, row, key)) continue;
        const Share<Real> share = ShareOf<Real>(data, row, key, order);
        dk_error.Add((share.error.d_score + share.error.delta) *
                     Largest(&data.q[row * dim_], dim_));
        dv_error.Add(share.error.weight * Largest(&data.d_out[row * value_dim_], value_dim_));
        Add(share.d_score, &data.q[row * dim_], dim_, &dk);
        Add(share.weight, &data.d_out[row * value_dim_], value_dim_, &dv);
      }
    }
    std::vector<double> both(dk.begin(), dk.end());
    both.insert(both.end(), dv.begin(), dv.end());
    return {std::move(both), dk_error.Allowed(), dv_error.Allowed()};
  }

  // Compares `answer` with the elements of `exact` and `naive` from `first` on.
  void Judge(const Gradient& exact, const Gradient& naive, int64_t first,
             const std::vector<float>& answer, HeadErrors* errors) const {
    for (size_t i = 0; i < answer.size(); ++i) {
      const float rounded = RoundTo(spec_.dtype, static_cast<float>(naive.values[first + i]));
      errors->AddOutput(exact.values[first + i], rounded, answer[i]);
    }
  }

  // Calls judge(row, exact, naive of each order) for each row. make(row, order, kind) computes a
  // gradient, on all threads, in the type of `kind`.
  template <typename Make, typename JudgeRow>
  void ForGradients(const std::vector<int64_t>& rows, Make make, JudgeRow judge) const {
    constexpr int64_t kAtOnce = 256;
    const auto count = static_cast<int64_t>(rows.size());
    for (int64_t begin = 0; begin < count; begin += kAtOnce) {
      const int64_t size = std::min(kAtOnce, count - begin);
      std::vector<Gradient> exact(size), naive(size * orders_);
      ForEachOnAllThreads(size * (orders_ + 1), [&](int64_t n) {
        if (n < size) exact[n] = make(rows[begin + n], Order(), 0.0);
        if (n < size) return;
        const int64_t at = n - size;
        naive[at] = make(rows[begin + at / orders_], Order{at % orders_, orders_}, 0.0f);
      });
      for (int64_t n = 0; n < size; ++n) {
        judge(rows[begin + n], exact[n], &naive[n * orders_]);
      }
    }
  }

  void JudgeQueries(const HeadData& data, const std::vector<int64_t>& rows, HeadErrors* errors) {
    const auto make = [&](int64_t row, const Order& order, auto kind) {
      return QueryGradient<decltype(kind)>(data, row, order);
    };
    ForGradients(rows, make, [&](int64_t row, const Gradient& exact, const Gradient* naive) {
      errors->AllowOfFew(exact.allowed);
      const std::vector<float> answer = tensors_.Rows(TensorId::kDq, data.head, row, 1);
      for (int64_t n = 0; n < orders_; ++n) Judge(exact, naive[n], 0, answer, errors);
      if (!d_sink_.empty()) JudgeSink(data, row);
    });
  }

  // Adds a head's gradients of the bias in all picked rows. Judged with the last head that adds to
  // them.
  void AddBiasGradients(const HeadData& data, const std::vector<int64_t>& rows) {
    const bool of_all = bias_->errors.size() == 1;
    HeadErrors& errors = bias_->errors[of_all ? 0 : data.head];
    ForEachOnAllThreads(static_cast<int64_t>(rows.size()), [&](int64_t i) {
      const int64_t first = mask_.KeyBegin(mask_.SequenceOfQuery(rows[i]));
      for (const int64_t key : job_.KeysOf(data.head, rows[i])) {
        const Share<double> share = ShareOf<double>(data, rows[i], key, Order());
        bias_->Exact(i)[key - first] += share.d_bias;
        bias_->Error(i)[key - first].Add(share.error.d_bias);
        for (int64_t n = 0; n < bias_->orders; ++n) {
          float& naive = bias_->Naive(n, i)[key - first];
          naive += ShareOf<float>(data, rows[i], key, {n, bias_->orders}).d_bias;
        }
      }
    });
    if (of_all && data.head + 1 < spec_.q_heads) return;
    for (size_t i = 0; i < rows.size(); ++i) {
      bias_->Judge(i, tensors_.Rows(TensorId::kDBias, of_all ? 0 : data.head, rows[i], 1), &errors);
    }
    bias_->Begin(rows.size());
  }

  void JudgeSink(const HeadData& data, int64_t row) {
    const double exact = SinkGradient<double>(data, row, Order());
    d_sink_[data.head].AllowOfFew(2 * SinkError(data, row));
    const float answer = tensors_.Rows(TensorId::kDSink, data.head, row, 1)[0];
    for (int64_t n = 0; n < orders_; ++n) {
      const auto naive = static_cast<float>(SinkGradient<float>(data, row, {n, orders_}));
      d_sink_[data.head].AddOutput(exact, naive, answer);
    }
  }

  void JudgeKeys(const std::vector<HeadData>& heads, int32_t kv_head,
                 const std::vector<int64_t>& rows, HeadErrors* dk, HeadErrors* dv) const {
    const auto make = [&](int64_t row, const Order& order, auto kind) {
      return KeyGradients<decltype(kind)>(heads, row, order);
    };
    ForGradients(rows, make, [&](int64_t row, const Gradient& exact, const Gradient* naive) {
      dk->AllowOfFew(exact.allowed);
      dv->AllowOfFew(exact.dv_allowed);
      const std::vector<float> got_dk = tensors_.Rows(TensorId::kDk, kv_head, row, 1);
      const std::vector<float> got_dv = tensors_.Rows(TensorId::kDv, kv_head, row, 1);
      for (int64_t n = 0; n < orders_; ++n) {
        Judge(exact, naive[n], 0, got_dk, dk);
        Judge(exact, naive[n], dim_, got_dv, dv);
      }
    });
  }

  void Note(TensorId id, const std::vector<HeadErrors>& heads, int64_t rows,
            GradientReport* report) const {
    const DataType dtype = tensors_.dtype(id);
    const std::vector<double> budgets = OutputBudgets(heads, rows, UlpOf(dtype));
    for (size_t head = 0; head < heads.size(); ++head) {
      // Multiplied, because a budget may be 0.
      if (heads[head].answer() * report->budget <= report->error * budgets[head] &&
          report->budget > 0) {
        continue;
      }
      report->worst_tensor = id;
      report->worst_head = static_cast<int32_t>(head);
      report->error = heads[head].answer();
      report->budget = budgets[head];
    }
  }

  const AttentionSpec& spec_;
  const JobRows job_;
  const HeadTensors& tensors_;
  const MaskMap& mask_;
  const BiasAndMaskRows& pairs_;
  const int64_t dim_, value_dim_;
  std::optional<DropoutRule> dropout_;
  int64_t orders_ = 1;
  std::vector<HeadErrors> d_sink_;  // By query head; empty without sinks.
  std::optional<BiasSums> bias_;    // Set if the job has d_bias.
};

}  // namespace

GradientReport VerifyGradients(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, GivenLse lse) {
  return GradientVerifier(spec, tensors).Run(count, seed, lse);
}

}  // namespace annulus
