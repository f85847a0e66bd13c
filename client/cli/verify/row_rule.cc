#include "client/cli/verify/row_rule.h"

namespace annulus {

RowRule MakeRowRule(const AttentionSpec& spec, const MaskMap& mask, const BiasAndMaskRows& pairs,
                    int32_t head, int64_t row) {
  const ScoreModifiers& modifiers = spec.modifiers;
  RowRule rule;
  rule.scale = spec.scale_or_default();
  rule.soft_cap = modifiers.soft_cap;
  if (!modifiers.sinks.empty()) rule.sink = modifiers.sinks[head];
  if (!modifiers.alibi_slopes.empty()) rule.slope = modifiers.alibi_slopes[head];
  rule.offset = pairs.OffsetOf(head, row);
  rule.position = mask.Position(head, row);
  rule.sequence = mask.SequenceOfQuery(row);
  rule.first_key = mask.KeyBegin(rule.sequence);
  rule.row = row - mask.QueryBegin(rule.sequence);
  rule.head = head;
  return rule;
}

}  // namespace annulus
