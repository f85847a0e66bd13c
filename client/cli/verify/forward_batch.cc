#include "client/cli/verify/forward_batch.h"

#include <algorithm>
#include <cmath>

namespace annulus {
namespace {

// Forwards, and backwards from the middle. The cost of reading keys grows with the number of
// streams.
constexpr int64_t kMaxStreams = 2;
// The keys are cut into at most 16 parts of at least 16 blocks. Shorter rows are not cut.
constexpr int64_t kMaxParts = 16, kBlocksOfPart = 16;

// The product of two fp32 numbers as bf16x3: each is split into two bf16 parts.
struct OfParts {
  float operator()(float a, float b) const {
    const float a_high = High(a), b_high = High(b);
    const float a_low = Low(a, a_high), b_low = Low(b, b_high);
    return a_high * b_low + a_high * b_high + a_low * b_high;
  }
  static float High(float x) { return RoundTo(DataType::kBf16, x); }
  static float Low(float x, float high) { return std::isfinite(high) ? High(x - high) : 0; }
};

struct Size {
  double operator()(double a, double b) const { return std::abs(a * b); }
};

// The size of a score, from the sum of the sizes of its product.
double ScoreMagnitude(double product, double sizes, const RowRule& rule) {
  const double magnitude = sizes * std::abs(rule.scale);
  if (!rule.soft_cap.has_value()) return magnitude;
  const double part = std::tanh((product * rule.scale + rule.offset) / *rule.soft_cap);
  return magnitude * (1 - part * part);
}

}  // namespace

// The buffers of one thread.
struct ForwardBatch::Scratch {
  VisibleKeys seen;
  std::vector<double> exact;
  std::vector<float> naive;
  std::vector<bool> kept;
};

ForwardBatch::ForwardBatch(const JobRows& job, const std::vector<RowCell>& cells, int64_t orders,
                           bool with_sizes)
    : job_(job),
      orders_(orders),
      parts_of_bf16_(job.spec().arithmetic == Arithmetic::kBf16x3),
      kv_head_(job.KvHeadOf(cells.front().head)),
      keys_{job.spec().kv_rows(), 0} {
  const int64_t dim = job.spec().value_dim();
  for (const RowCell& cell : cells) {
    Row row;
    row.cell = cell;
    row.query = job.Query(cell.head, cell.row);
    for (const Interval& seen : row.query.seen) {
      keys_ = {std::min(keys_.begin, seen.begin), std::max(keys_.end, seen.end)};
    }
    row.naive.assign(orders, {0, std::vector<float>(dim, 0.0f)});
    rows_.push_back(std::move(row));
  }
  parts_ = std::clamp<int64_t>(blocks() / kBlocksOfPart, 1, kMaxParts);
  ExactSums none;
  none.out.assign(dim, 0.0);
  none.sizes.assign(with_sizes ? dim : 0, 0.0);
  for (Row& row : rows_) {
    row.max_of_part.resize(parts_);
    row.exact.assign(parts_, none);
  }
}

int64_t ForwardBatch::streams() const { return std::min(orders_, kMaxStreams); }

Interval ForwardBatch::BlocksOfPart(int64_t part) const {
  return {blocks() * part / parts_, blocks() * (part + 1) / parts_};
}

bool ForwardBatch::SeesSome(Interval keys) const {
  return std::any_of(rows_.begin(), rows_.end(), [keys](const Row& row) {
    return std::any_of(row.query.seen.begin(), row.query.seen.end(),
                       [keys](const Interval& seen) { return Intersect(seen, keys).length() > 0; });
  });
}

// Calls use(block) for the blocks with a key that a row sees.
template <typename Use>
void ForwardBatch::ForBlocks(const Order& order, Interval blocks, bool values, Use use) const {
  KeyBlock block;
  for (int64_t n = 0; n < blocks.length(); ++n) {
    const Interval keys = BlockOf(keys_, blocks.begin + order.At(n, blocks.length()));
    if (!SeesSome(keys)) continue;
    job_.LoadKeys(kv_head_, keys, &block);
    if (values) job_.LoadValues(kv_head_, &block);
    use(block);
  }
}

void ForwardBatch::NaiveScores(const KeyBlock& block, const Row& row, Scratch* scratch) const {
  if (parts_of_bf16_) {
    ScoresOf<float, OfParts>(row.query, block, scratch->seen, &scratch->naive);
  } else {
    ScoresOf<float>(row.query, block, scratch->seen, &scratch->naive);
  }
}

void ForwardBatch::AddMax(const KeyBlock& block, int64_t part, Row* row, Scratch* scratch) const {
  job_.Find(row->query, block, &scratch->seen);
  if (scratch->seen.at.empty()) return;
  ScoresOf<double>(row->query, block, scratch->seen, &scratch->exact);
  NaiveScores(block, *row, scratch);
  Max& max = row->max_of_part[part];
  max.sees = true;
  for (const double score : scratch->exact) max.exact = std::max(max.exact, score);
  for (const float score : scratch->naive) max.naive = std::max(max.naive, score);
}

void ForwardBatch::TakeMax(int64_t part) {
  Scratch scratch;
  ForBlocks(Order(), BlocksOfPart(part), false, [&](const KeyBlock& block) {
    for (Row& row : rows_) AddMax(block, part, &row, &scratch);
  });
}

void ForwardBatch::EndMax() {
  for (Row& row : rows_) {
    for (const Max& part : row.max_of_part) {
      row.max.exact = std::max(row.max.exact, part.exact);
      row.max.naive = std::max(row.max.naive, part.naive);
      row.max.sees = row.max.sees || part.sees;
    }
    row.top = row.max;
    const std::optional<double>& sink = row.query.rule.sink;
    if (!sink.has_value()) continue;
    row.top.exact = std::max(row.max.exact, *sink);
    row.top.naive = std::max(row.max.naive, static_cast<float>(*sink));
    row.exact.front().total = std::exp(*sink - row.top.exact);
    for (NaiveSums& sums : row.naive) {
      sums.total = std::exp(static_cast<float>(*sink) - row.top.naive);
    }
  }
}

void ForwardBatch::AddExact(const KeyBlock& block, int64_t part, Row* row, Scratch* scratch) const {
  const VisibleKeys& seen = scratch->seen;
  job_.Find(row->query, block, &scratch->seen);
  if (seen.at.empty()) return;
  double products[KeyBlock::kRows], sizes[KeyBlock::kRows];
  const int64_t begin = seen.at.front(), end = seen.at.back() + 1;
  ProductsOf<double>(row->query, block, begin, end, products);
  ProductsOf<double, Size>(row->query, block, begin, end, sizes);
  const RowRule& rule = row->query.rule;
  const int64_t dim = job_.spec().value_dim();
  ExactSums& sums = row->exact[part];
  for (size_t n = 0; n < seen.at.size(); ++n) {
    const int64_t at = seen.at[n], key = block.rows.begin + at;
    const double score = ScoreOf(products[at], rule, key, seen.bias[n]);
    const double magnitude = ScoreMagnitude(products[at], sizes[at], rule);
    const double weight = std::exp(score - row->top.exact);
    sums.total += weight;
    sums.product += weight * magnitude;
    if (!sums.has_max && score == row->max.exact) sums.product_of_max = magnitude;
    sums.has_max = sums.has_max || score == row->max.exact;
    const double kept = rule.Keeps(key) ? weight / rule.kept : 0;
    const float* v = &block.v[at * dim];
    for (int64_t i = 0; i < dim; ++i) sums.out[i] += kept * static_cast<double>(v[i]);
    for (size_t i = 0; i < sums.sizes.size(); ++i) {
      sums.sizes[i] += kept * std::abs(static_cast<double>(v[i]));
    }
    sums.scale += kept * static_cast<double>(block.max_v[at]);
  }
}

void ForwardBatch::TakeExact(int64_t part) {
  Scratch scratch;
  ForBlocks(Order(), BlocksOfPart(part), true, [&](const KeyBlock& block) {
    for (Row& row : rows_) AddExact(block, part, &row, &scratch);
  });
}

void ForwardBatch::AddTotals(const KeyBlock& block, const std::vector<int64_t>& orders, Row* row,
                             Scratch* scratch) const {
  job_.Find(row->query, block, &scratch->seen);
  NaiveScores(block, *row, scratch);
  for (float& score : scratch->naive) score = std::exp(score - row->top.naive);
  const auto size = static_cast<int64_t>(scratch->naive.size());
  for (const int64_t number : orders) {
    const Order order{number, orders_};
    float& total = row->naive[number].total;
    for (int64_t n = 0; n < size; ++n) total += scratch->naive[order.At(n, size)];
  }
}

void ForwardBatch::AddRow(const float* v, float weight, std::vector<float>* out) const {
  const auto dim = static_cast<int64_t>(out->size());
  float* to = out->data();
  if (parts_of_bf16_) {
    for (int64_t i = 0; i < dim; ++i) to[i] += OfParts()(weight, v[i]);
  } else {
    for (int64_t i = 0; i < dim; ++i) to[i] += weight * v[i];
  }
}

void ForwardBatch::AddValues(const KeyBlock& block, const std::vector<int64_t>& orders, Row* row,
                             Scratch* scratch) const {
  const VisibleKeys& seen = scratch->seen;
  const RowRule& rule = row->query.rule;
  const DataType dtype = job_.spec().dtype;
  const int64_t dim = job_.spec().value_dim();
  job_.Find(row->query, block, &scratch->seen);
  NaiveScores(block, *row, scratch);
  for (float& score : scratch->naive) score = std::exp(score - row->top.naive);
  const auto size = static_cast<int64_t>(scratch->naive.size());
  scratch->kept.resize(size);
  for (int64_t n = 0; n < size; ++n) {
    scratch->kept[n] = rule.Keeps(block.rows.begin + seen.at[n]);
  }
  for (const int64_t number : orders) {
    const Order order{number, orders_};
    NaiveSums& sums = row->naive[number];
    for (int64_t n = 0; n < size; ++n) {
      const int64_t at = order.At(n, size);
      const float weight =
          scratch->kept[at] ? scratch->naive[at] / sums.total / static_cast<float>(rule.kept) : 0;
      AddRow(&block.v[seen.at[at] * dim], RoundTo(dtype, weight), &sums.out);
    }
  }
}

void ForwardBatch::TakeNaive(const std::vector<int64_t>& orders) {
  Scratch scratch;
  const Order stream{orders.front() % streams(), streams()};
  ForBlocks(stream, {0, blocks()}, false, [&](const KeyBlock& block) {
    for (Row& row : rows_) AddTotals(block, orders, &row, &scratch);
  });
  ForBlocks(stream, {0, blocks()}, true, [&](const KeyBlock& block) {
    for (Row& row : rows_) AddValues(block, orders, &row, &scratch);
  });
}

ExactRow ForwardBatch::Exact(int64_t n) const {
  const Row& row = rows_[n];
  ExactRow exact;
  exact.out.assign(job_.spec().value_dim(), 0.0);
  exact.sizes.assign(row.exact.front().sizes.size(), 0.0);
  if (row.query.rule.sink.has_value()) exact.lse = *row.query.rule.sink;
  if (!row.max.sees) return exact;
  double total = 0;
  for (const ExactSums& part : row.exact) total += part.total;
  for (const ExactSums& part : row.exact) {
    for (size_t i = 0; i < exact.out.size(); ++i) exact.out[i] += part.out[i] / total;
    for (size_t i = 0; i < exact.sizes.size(); ++i) exact.sizes[i] += part.sizes[i] / total;
    exact.scale += part.scale / total;
    exact.product += part.product / total;
  }
  const auto has_max = std::find_if(row.exact.begin(), row.exact.end(),
                                    [](const ExactSums& part) { return part.has_max; });
  if (has_max != row.exact.end()) exact.product_of_max = has_max->product_of_max;
  exact.lse = row.top.exact + std::log(total);
  exact.max_logit = std::isnan(exact.lse) ? exact.lse : row.max.exact;
  return exact;
}

NaiveRow ForwardBatch::Naive(int64_t n, int64_t order) const {
  const Row& row = rows_[n];
  const NaiveSums& sums = row.naive[order];
  NaiveRow naive;
  naive.out = sums.out;
  if (row.query.rule.sink.has_value()) naive.lse = *row.query.rule.sink;
  if (!row.max.sees) return naive;
  naive.lse = static_cast<double>(row.top.naive) + std::log(static_cast<double>(sums.total));
  naive.max_logit = std::isnan(naive.lse) ? naive.lse : static_cast<double>(row.max.naive);
  return naive;
}

}  // namespace annulus
