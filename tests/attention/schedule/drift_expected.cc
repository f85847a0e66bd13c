#include "tests/attention/schedule/drift_expected.h"

#include <cmath>
#include <limits>

namespace annulus {
namespace {

double DeltaAt(int64_t q_row, int32_t h) {
  return OutGradientAt(q_row, h) * OutAt(q_row, h) - LseGradientAt(q_row, h);
}

}  // namespace

bool ExpectedOutputs::Sees(int64_t q_row, int64_t k_row, int32_t head) const {
  const int64_t sequence = built_.mask.SequenceOfQuery(q_row);
  if (built_.mask.SequenceOfKey(k_row) != sequence) return false;
  return VisibleByFormula(built_.spec, sequence, head, q_row - built_.mask.QueryBegin(sequence),
                          k_row - built_.mask.KeyBegin(sequence));
}

PartialNumbers ExpectedOutputs::PartialOf(int64_t q_row, int32_t h) const {
  const int32_t group = built_.spec.q_heads / built_.spec.kv_heads;
  PartialNumbers all;
  for (int64_t k = 0; k < built_.spec.kv_rows(); ++k) {
    if (!Sees(q_row, k, h)) continue;
    all = Merge(all, {ValueAt(k, h / group), QueryAt(q_row, h) * KeyAt(k, h / group), 1});
  }
  return all;
}

PairGradients ExpectedOutputs::PairOf(int64_t q_row, int32_t h, int64_t k_row) const {
  const int32_t kv_head = h / (built_.spec.q_heads / built_.spec.kv_heads);
  return GradientsOfPair(QueryAt(q_row, h), OutGradientAt(q_row, h), LseAt(q_row, h),
                         DeltaAt(q_row, h), KeyAt(k_row, kv_head), ValueAt(k_row, kv_head));
}

std::vector<double> ExpectedOutputs::BiasGradient(int64_t row, int32_t bias_head) const {
  std::vector<double> sums(pairs_.width, 0.0);
  const int64_t first = built_.mask.KeyBegin(built_.mask.SequenceOfQuery(row));
  for (int64_t k = 0; k < built_.spec.kv_rows(); ++k) {
    for (int32_t h = 0; h < built_.spec.q_heads; ++h) {
      if ((pairs_.bias_heads != 1 && h != bias_head) || !Sees(row, k, h)) continue;
      sums[k - first] += PairOf(row, h, k).d_bias;
    }
  }
  return sums;
}

std::vector<double> ExpectedOutputs::At(BlockKind kind, int64_t row, int32_t h) const {
  PairGradients sum;
  if (kind == BlockKind::kDBias) return BiasGradient(row, h);
  if (kind == BlockKind::kOut) {
    const PartialNumbers want = PartialOf(row, h);
    if (want.weight == 0) return {0, -std::numeric_limits<double>::infinity()};
    return {want.sum / want.weight, want.max + std::log(want.weight)};
  }
  if (kind == BlockKind::kDSinkOut) {
    return {SinkGradientOf(built_.spec.modifiers.sinks[h], LseAt(row, h), DeltaAt(row, h))};
  }
  if (kind == BlockKind::kDqOut) {
    for (int64_t k = 0; k < built_.spec.kv_rows(); ++k) {
      if (Sees(row, k, h)) sum.dq += PairOf(row, h, k).dq;
    }
    return {sum.dq};
  }
  const int32_t group = built_.spec.q_heads / built_.spec.kv_heads;
  for (int64_t q = 0; q < built_.spec.q_rows(); ++q) {
    for (int32_t q_head = h * group; q_head < (h + 1) * group; ++q_head) {
      if (!Sees(q, row, q_head)) continue;
      const PairGradients more = PairOf(q, q_head, row);
      sum.dk += more.dk;
      sum.dv += more.dv;
    }
  }
  return {sum.dk, sum.dv};
}

}  // namespace annulus
