#ifndef ANNULUS_CLIENT_CLI_VERIFY_JOB_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_JOB_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/numerics/dropout.h"
#include "attention/spec/interval.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "client/cli/verify/bias_and_mask_rows.h"
#include "client/cli/verify/order.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {

// The numbers of one row and head that turn products into scores and end the row.
struct RowRule {
  double scale = 1;
  std::optional<double> soft_cap, sink;
  double slope = 0, offset = 0;
  int64_t position = 0;   // Position among the packed key rows.
  int64_t first_key = 0;  // The first key of the row's sequence.
  // Dropout, with the row's number in its sequence. Null: none.
  const DropoutRule* dropout = nullptr;
  double kept = 1;  // 1 − rate.
  int64_t sequence = 0, row = 0;
  int32_t head = 0;

  bool Keeps(int64_t key_row) const {
    return dropout == nullptr || dropout->Keeps(sequence, head, row, key_row - first_key);
  }
};

// The rule of a packed query row and a query head, without dropout.
RowRule MakeRowRule(const AttentionSpec& spec, const MaskMap& mask, const BiasAndMaskRows& pairs,
                    int32_t head, int64_t row);

// The score of a packed key row, from its product with the query row and the pair's bias, computed
// in Real (docs/reference/numerics.md).
template <typename Real>
Real ScoreOf(Real product, const RowRule& rule, int64_t key_row, float bias) {
  Real score = product * static_cast<Real>(rule.scale) + static_cast<Real>(rule.offset);
  if (rule.soft_cap.has_value()) {
    const auto cap = static_cast<Real>(*rule.soft_cap);
    score = cap * std::tanh(score / cap);
  }
  const auto away = static_cast<Real>(std::abs(rule.position - key_row));
  if (rule.slope != 0) score -= static_cast<Real>(rule.slope) * away;
  return score + static_cast<Real>(bias);
}

// A block of keys of one key/value head. Verifiers read keys in blocks, so that their memory does
// not grow with the number of keys.
struct KeyBlock {
  static constexpr int64_t kRows = 512;  // The maximum number of keys in a block.
  // Products are computed for this many keys at once. The last ones of a block may have no key.
  static constexpr int64_t kAtOnce = 16;

  Interval rows;             // Packed key rows.
  std::vector<float> k;      // [head_dim, kRows]
  std::vector<float> v;      // [rows, value_dim], if loaded.
  std::vector<float> max_v;  // max |v| of each row, if loaded.
};

// A query row and head.
struct RowCell {
  int32_t head = 0;
  int64_t row = 0;  // Packed.
};

// The data of one cell for its scores.
struct QueryRow {
  std::vector<float> q;
  RowRule rule;
  Intervals seen;  // Packed key rows, before bias and bit mask.
  int64_t row = 0;
};

// The keys of a block that a query row sees.
struct VisibleKeys {
  std::vector<int64_t> at;  // Indices in the block, increasing.
  std::vector<float> bias;  // The bias of each.
};

// The tensors and rules of a job, as verifiers read them. Immutable and thread-safe. `spec` and
// `tensors` (packed, as TensorTable(spec) lists them) must outlive this object.
class JobRows {
 public:
  JobRows(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors);

  const AttentionSpec& spec() const { return spec_; }
  const HeadTensors& tensors() const { return tensors_; }
  const MaskMap& mask() const { return mask_; }
  const BiasAndMaskRows& pairs() const { return pairs_; }

  QueryRow Query(int32_t head, int64_t row) const;
  int32_t KvHeadOf(int32_t head) const { return head / (spec_.q_heads / spec_.kv_heads); }

  // Loads the packed key rows `rows`, at most kRows, into `block`.
  void LoadKeys(int32_t kv_head, Interval rows, KeyBlock* block) const;
  void LoadValues(int32_t kv_head, KeyBlock* block) const;  // For the block's rows.

  // The keys that a query row sees, after bias and bit mask: KeysOf() over all keys, packed (memory
  // grows with their number); Sees() for one key; Find() in a block.
  std::vector<int64_t> KeysOf(int32_t head, int64_t row) const;
  bool Sees(int32_t head, int64_t row, int64_t key) const;
  void Find(const QueryRow& query, const KeyBlock& block, VisibleKeys* seen) const;

 private:
  bool Hides(int32_t head, int64_t row, int64_t key) const;

  const AttentionSpec& spec_;
  const HeadTensors tensors_;
  const MaskMap mask_;
  const BiasAndMaskRows pairs_;
  std::optional<DropoutRule> dropout_;
};

// BlocksOf(): the number of blocks of the keys `rows`. BlockOf(): the n-th block.
inline int64_t BlocksOf(Interval rows) {
  return (rows.length() + KeyBlock::kRows - 1) / KeyBlock::kRows;
}
inline Interval BlockOf(Interval rows, int64_t n) {
  const int64_t begin = rows.begin + n * KeyBlock::kRows;
  return {begin, std::min(begin + KeyBlock::kRows, rows.end)};
}

// Plain multiplication.
struct Whole {
  template <typename Real>
  Real operator()(Real a, Real b) const {
    return a * b;
  }
};

// Computes the dot products of a query with keys [begin, end) of a block into out[begin, end), each
// summed over the dimensions in `order`. May write up to kAtOnce − 1 numbers before and after this
// range, within kRows.
template <typename Real, typename Product = Whole>
void ProductsOf(const QueryRow& query, const KeyBlock& block, int64_t begin, int64_t end, Real* out,
                const Order& order = {}) {
  constexpr int64_t kAtOnce = KeyBlock::kAtOnce;
  const Product product;
  const auto dim = static_cast<int64_t>(query.q.size());
  for (int64_t first = begin / kAtOnce * kAtOnce; first < end; first += kAtOnce) {
    Real sums[kAtOnce] = {};
    for (int64_t i = 0; i < dim; ++i) {
      const int64_t d = order.At(i, dim);
      const auto q = static_cast<Real>(query.q[d]);
      const float* k = &block.k[d * KeyBlock::kRows + first];
      for (int64_t n = 0; n < kAtOnce; ++n) sums[n] += product(q, static_cast<Real>(k[n]));
    }
    std::copy(sums, sums + kAtOnce, out + first);
  }
}

// The scores of the keys `seen.at`, in their order.
template <typename Real, typename Product = Whole>
void ScoresOf(const QueryRow& query, const KeyBlock& block, const VisibleKeys& seen,
              std::vector<Real>* scores, const Order& order = {}) {
  scores->resize(seen.at.size());
  if (seen.at.empty()) return;
  Real products[KeyBlock::kRows];
  ProductsOf<Real, Product>(query, block, seen.at.front(), seen.at.back() + 1, products, order);
  for (size_t n = 0; n < seen.at.size(); ++n) {
    (*scores)[n] =
        ScoreOf(products[seen.at[n]], query.rule, block.rows.begin + seen.at[n], seen.bias[n]);
  }
}

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_JOB_ROWS_H_
