#include "worker/kernel/cpu/row_end.h"

#include <vector>

#include "worker/kernel/cpu/fetch_rows.h"

namespace annulus {
namespace {

// All of the rule but the sink, which differs by head.
FinishRule RuleOf(const AttentionSpec& spec) {
  FinishRule rule;
  if (spec.dropout) rule.kept = static_cast<float>(1 - spec.dropout->rate);
  rule.lse_base_2 = spec.outputs.lse_base == LseBase::k2;
  return rule;
}

}  // namespace

RowEnd::RowEnd(const KernelJob& job, const BlockView& out, const TileIsa& isa)
    : job_(job), isa_(isa), rule_(RuleOf(*job.spec)), out_(RowsOf(*job.layout, out)) {}

FinishRule RowEnd::RuleOfHead(int32_t head) const {
  const std::vector<float>& sinks = job_.spec->modifiers.sinks;
  FinishRule rule = rule_;
  if (!sinks.empty()) rule.sink = sinks[head];
  return rule;
}

float RowEnd::WriteOutput(int64_t row, int32_t head, const RowState& state,
                          const float* sums) const {
  const BlockLayout& layout = *job_.layout;
  const RowDivision by = DivisionOf(state, RuleOfHead(head));
  isa_.finish_row(sums, by, layout.value_dim(), layout.out_dtype(), out_.At(row, head, 0));
  return by.lse;
}

void RowEnd::WriteStatistics(int64_t row, int32_t head, const RowState& state, float lse) const {
  *out_.Floats(row, head, 1) = lse;
  if (job_.layout->max_logit()) *out_.Floats(row, head, 2) = MaxLogit(state);
  if (!job_.layout->lse_rest(BlockKind::kOut)) return;
  FinishRule rule = RuleOfHead(head);
  rule.lse_rest = true;
  *out_.Floats(row, head, 3) = DivisionOf(state, rule).lse_rest;
}

void RowEnd::FetchOutput(int64_t row, int32_t head) const {
  FetchRows(out_.At(row, head, 0), out_.sections[0].head_bytes, 0, 1);
}

}  // namespace annulus
