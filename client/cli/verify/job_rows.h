#ifndef ANNULUS_CLIENT_CLI_VERIFY_JOB_ROWS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_JOB_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "client/cli/verify/row_rule.h"
#include "client/cli/verify/verify_rows.h"

namespace annulus {

// The keys of one key/value head, block by block: whatever a verifier computes of a row takes
// memory that does not grow with the keys.
struct KeyBlock {
  static constexpr int64_t kRows = 512;  // At most.
  // Products are made of so many keys side by side; the last ones of a block may be of no key.
  static constexpr int64_t kAtOnce = 16;

  Interval rows;             // Packed key rows.
  std::vector<float> k;      // [head_dim, kRows]
  std::vector<float> v;      // [rows, value_dim], where they were asked for,
  std::vector<float> max_v;  // and max |v| of each row.
};

// A query row and head.
struct RowCell {
  int32_t head = 0;
  int64_t row = 0;  // Packed.
};

// All of one that its scores take.
struct QueryRow {
  std::vector<float> q;
  RowRule rule;
  Intervals seen;  // Packed key rows, before bias and bit mask.
  int64_t row = 0;
};

// The keys of a block that a query row sees.
struct VisibleKeys {
  std::vector<int64_t> at;  // Places in the block, increasing.
  std::vector<float> bias;  // Of each.
};

// The tensors of a job and its rules, as verifiers read them. Immutable, safe to share between
// threads. `spec` and `tensors` (packed, as TensorTable(spec) lists them) must outlive it.
class JobRows {
 public:
  JobRows(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors);

  const AttentionSpec& spec() const { return spec_; }
  const HeadTensors& tensors() const { return tensors_; }
  const MaskMap& mask() const { return mask_; }
  const BiasAndMaskRows& pairs() const { return pairs_; }

  QueryRow Query(int32_t head, int64_t row) const;
  int32_t KvHeadOf(int32_t head) const { return head / (spec_.q_heads / spec_.kv_heads); }

  // Fills `block` with the packed key rows `rows`, at most kRows.
  void LoadKeys(int32_t kv_head, Interval rows, KeyBlock* block) const;
  void LoadValues(int32_t kv_head, KeyBlock* block) const;  // Of the block's rows.

  // What a query row sees: without what bias or bit mask hides. Of all keys, packed; memory grows
  // with these.
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

// The n-th block of the keys `rows`, and how many there are.
inline int64_t BlocksOf(Interval rows) {
  return (rows.length() + KeyBlock::kRows - 1) / KeyBlock::kRows;
}
inline Interval BlockOf(Interval rows, int64_t n) {
  const int64_t begin = rows.begin + n * KeyBlock::kRows;
  return {begin, std::min(begin + KeyBlock::kRows, rows.end)};
}

// What products multiply by: numbers as they are.
struct Whole {
  template <typename Real>
  Real operator()(Real a, Real b) const {
    return a * b;
  }
};

// Products of a query with keys [begin, end) of a block into out[begin, end), each summed over the
// dimensions in that order. Writes up to kAtOnce − 1 numbers on either side, within kRows.
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

// Scores of the keys that a row sees, as `seen.at`.
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
