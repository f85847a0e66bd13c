#ifndef ANNULUS_CLIENT_CLI_VERIFY_ROW_RULE_H_
#define ANNULUS_CLIENT_CLI_VERIFY_ROW_RULE_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "attention/mask/mask.h"
#include "attention/numerics/dropout.h"
#include "attention/spec/spec.h"
#include "client/cli/verify/bias_and_mask_rows.h"

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

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_ROW_RULE_H_
