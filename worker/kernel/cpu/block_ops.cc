#include "worker/kernel/cpu/block_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "attention/numerics/partial.h"
#include "attention/schedule/model/accumulators.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/row_end.h"

namespace annulus {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kRowsAtOnce = 64;

struct Operands {
  const KernelJob& job;
  const BlockLayout& layout;
  BlockRows source, target;
  RowEnd end;  // Writes to the target.
  int32_t head_begin, head_end;
};

// The sums of a partial stay as they are.
void IdentityRow(const Operands& o, int64_t row) {
  const bool partial = o.target.view->block.kind == BlockKind::kPartial;
  const int64_t heads = o.head_end - o.head_begin;
  for (size_t s = partial ? 1 : 0; s < o.target.sections.size(); ++s) {
    const float value = partial && s == 1 ? -std::numeric_limits<float>::infinity() : 0.0f;
    std::fill_n(o.target.Floats(row, o.head_begin, s),
                heads * (o.target.sections[s].head_bytes / kFloat), value);
  }
}

RowState StateAt(const BlockRows& side, int64_t row, int32_t head) {
  return {*side.Floats(row, head, 1), *side.Floats(row, head, 2)};
}

void SetState(const BlockRows& side, int64_t row, int32_t head, const RowState& state) {
  *side.Floats(row, head, 1) = state.max;
  *side.Floats(row, head, 2) = state.weight;
}

void MergeRow(const Operands& o, int64_t row) {
  const size_t dim = o.layout.value_dim();
  const bool rounded = o.source.view->block.kind == BlockKind::kBf16Partial;
  std::array<float, kMaxHeadDim> sums;
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    const float* from = o.source.Floats(row, head, 0);
    if (rounded) {
      ConvertToFp32(DataType::kBf16, o.source.At(row, head, 0), dim, sums.data());
      from = sums.data();
    }
    RowState state = StateAt(o.target, row, head);
    Merge(state, absl::MakeSpan(o.target.Floats(row, head, 0), dim), StateAt(o.source, row, head),
          absl::MakeConstSpan(from, dim));
    SetState(o.target, row, head, state);
  }
}

void RoundPartialRow(const Operands& o, int64_t row) {
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    const RowState state = StateAt(o.source, row, head);
    SetState(o.target, row, head, state);
    if (state.max == -std::numeric_limits<float>::infinity()) continue;
    ConvertFromFp32(DataType::kBf16, o.source.Floats(row, head, 0), o.layout.value_dim(),
                    o.target.At(row, head, 0));
  }
}

void AddRow(const Operands& o, int64_t row) {
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    for (size_t s = 0; s < o.target.sections.size(); ++s) {
      const float* from = o.source.Floats(row, head, s);
      float* to = o.target.Floats(row, head, s);
      const int64_t count = o.target.sections[s].head_bytes / kFloat;
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    }
  }
}

void FinishRow(const Operands& o, int64_t row) {
  for (int32_t head = o.head_begin; head < o.head_end; ++head)
    o.end.Write(row, head, StateAt(o.source, row, head), o.source.Floats(row, head, 0));
}

// Gradients are rounded once.
void RoundRow(const Operands& o, int64_t row) {
  const int64_t element = BytesPerElement(o.layout.dtype());
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    for (size_t s = 0; s < o.target.sections.size(); ++s) {
      ConvertFromFp32(o.layout.dtype(), o.source.Floats(row, head, s),
                      o.target.sections[s].head_bytes / element, o.target.At(row, head, s));
    }
  }
}

void DeltaRow(const Operands& o, int64_t row) {
  const size_t dim = o.layout.value_dim();
  std::array<float, kMaxHeadDim> out, d_out;
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    ConvertToFp32(o.layout.out_dtype(), o.source.At(row, head, 0), dim, out.data());
    // The weights' gradients use the rounded d_out, so delta must too. Otherwise they would not add
    // up to 0 over a row, and keys with a large mean would multiply the difference.
    if (o.layout.rounds_d_out()) {
      ConvertFromFp32(o.layout.dtype(), o.source.Floats(row, head, 4), dim,
                      o.target.At(row, head, 1));
    }
    ConvertToFp32(o.layout.dtype(), o.target.At(row, head, 1), dim, d_out.data());
    float* const delta = o.target.Floats(row, head, 3);
    double sum = -static_cast<double>(*delta);
    for (size_t d = 0; d < dim; ++d) sum += static_cast<double>(out[d]) * d_out[d];
    *delta = static_cast<float>(sum);
  }
}

void SinkRow(const Operands& o, int64_t row) {
  for (int32_t head = o.head_begin; head < o.head_end; ++head) {
    const double lse = *o.source.Floats(row, head, 2), delta = *o.source.Floats(row, head, 3);
    const double rest = o.source.sections.has(4) ? *o.source.Floats(row, head, 4) : 0.0f;
    const bool empty = lse == -std::numeric_limits<double>::infinity();
    const double sink = o.job.spec->modifiers.sinks[head];
    *o.target.Floats(row, head, 0) =
        empty ? 0 : static_cast<float>(-std::exp((sink - lse) - rest) * delta);
  }
}

using RowFunction = void (*)(const Operands&, int64_t);

// nullptr if the operation is not made for these kinds.
RowFunction FunctionOf(KernelOp::Kind op, BlockKind source, BlockKind target) {
  switch (op) {
    case KernelOp::Kind::kIdentity:
      return IsAccumulator(target) ? IdentityRow : nullptr;
    case KernelOp::Kind::kMerge:
      return target == BlockKind::kPartial &&
                     (source == target || source == BlockKind::kBf16Partial)
                 ? MergeRow
                 : nullptr;
    case KernelOp::Kind::kRound:
      return source == BlockKind::kPartial && target == BlockKind::kBf16Partial ? RoundPartialRow
                                                                                : nullptr;
    case KernelOp::Kind::kAdd:
      return IsGradientSum(source) && target == source ? AddRow : nullptr;
    case KernelOp::Kind::kFinish:
      if (source == BlockKind::kDq && target == BlockKind::kDqOut) return RoundRow;
      if (source == BlockKind::kDkv && target == BlockKind::kDkvOut) return RoundRow;
      return source == BlockKind::kPartial && target == BlockKind::kOut ? FinishRow : nullptr;
    case KernelOp::Kind::kDelta:
      return source == BlockKind::kOut && target == BlockKind::kQGrad ? DeltaRow : nullptr;
    case KernelOp::Kind::kSink:
      return source == BlockKind::kQGrad && target == BlockKind::kDSinkOut ? SinkRow : nullptr;
  }
  return nullptr;
}

}  // namespace

absl::Status ApplyBlockOp(const KernelJob& job, const KernelOp& op, const TileIsa& isa,
                          ComputePool& pool, const RowsAndHeads& within) {
  const Block& target = op.target.block;
  const bool unary = op.kind == KernelOp::Kind::kIdentity;
  const BlockView& other = unary ? op.target : op.source;
  const RowFunction function = FunctionOf(op.kind, other.block.kind, target.kind);
  if (function == nullptr) {
    return absl::InternalError(
        absl::StrCat("operation ", static_cast<int>(op.kind), " does not take blocks of kinds ",
                     static_cast<int>(other.block.kind), " and ", static_cast<int>(target.kind)));
  }
  const int64_t row_begin = std::max({other.block.row_begin, target.row_begin, within.rows.begin});
  const int64_t row_end = std::min({other.block.row_end, target.row_end, within.rows.end});
  const BlockLayout& layout = *job.layout;
  const Operands operands{job,
                          layout,
                          RowsOf(layout, other),
                          RowsOf(layout, op.target),
                          RowEnd(job, op.target, isa),
                          std::max({other.block.head_begin, target.head_begin, within.head_begin}),
                          std::min({other.block.head_end, target.head_end, within.head_end})};
  if (row_begin >= row_end || operands.head_begin >= operands.head_end) return absl::OkStatus();
  pool.ParallelFor((row_end - row_begin + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t index, int) {
    const int64_t begin = row_begin + index * kRowsAtOnce;
    for (int64_t row = begin; row < std::min(row_end, begin + kRowsAtOnce); ++row)
      function(operands, row);
  });
  return absl::OkStatus();
}

}  // namespace annulus
