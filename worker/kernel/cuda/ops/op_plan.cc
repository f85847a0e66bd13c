#include "worker/kernel/cuda/ops/op_plan.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "attention/schedule/model/accumulators.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cuda/launch/table_image.h"

namespace annulus::cuda {
namespace {

// Absent if the operation is not made for these kinds.
std::optional<OpKind> OpKindOf(KernelOp::Kind op, BlockKind source, BlockKind target) {
  const bool same = source == target;
  switch (op) {
    case KernelOp::Kind::kIdentity:
      if (target == BlockKind::kPartial) return OpKind::kEmptyState;
      if (IsGradientSum(target)) return OpKind::kZero;
      break;
    case KernelOp::Kind::kMerge:
      if (target == BlockKind::kPartial && (same || source == BlockKind::kBf16Partial))
        return OpKind::kMerge;
      break;
    case KernelOp::Kind::kRound:
      if (source == BlockKind::kPartial && target == BlockKind::kBf16Partial)
        return OpKind::kRoundState;
      break;
    case KernelOp::Kind::kAdd:
      if (same && IsGradientSum(target)) return OpKind::kAdd;
      break;
    case KernelOp::Kind::kFinish:
      if (source == BlockKind::kPartial && target == BlockKind::kOut) return OpKind::kFinish;
      if (source == BlockKind::kDq && target == BlockKind::kDqOut) return OpKind::kRound;
      if (source == BlockKind::kDkv && target == BlockKind::kDkvOut) return OpKind::kRound;
      break;
    case KernelOp::Kind::kDelta:
      if (source == BlockKind::kOut && target == BlockKind::kQGrad) return OpKind::kDelta;
      break;
    case KernelOp::Kind::kSink:
      if (source == BlockKind::kQGrad && target == BlockKind::kDSinkOut) return OpKind::kSink;
      break;
  }
  return std::nullopt;
}

void SetRanges(const Block& source, const Block& target, OpArgs* args) {
  const int64_t row_begin = std::max(source.row_begin, target.row_begin);
  const int64_t row_end = std::min(source.row_end, target.row_end);
  const int32_t head_begin = std::max(source.head_begin, target.head_begin);
  const int32_t head_end = std::min(source.head_end, target.head_end);
  args->row_begin = static_cast<int32_t>(row_begin);
  args->head_begin = head_begin;
  args->heads = std::max(0, head_end - head_begin);
  args->cells = std::max<int64_t>(0, row_end - row_begin) * args->heads;
}

}  // namespace

absl::StatusOr<OpArgs> MakeOpArgs(const KernelJob& job, const KernelOp& op) {
  const BlockLayout& layout = *job.layout;
  const BlockView& other = op.kind == KernelOp::Kind::kIdentity ? op.target : op.source;
  const std::optional<OpKind> kind = OpKindOf(op.kind, other.block.kind, op.target.block.kind);
  if (!kind) {
    return absl::InternalError(absl::StrCat(
        "operation ", static_cast<int>(op.kind), " does not take blocks of kinds ",
        static_cast<int>(other.block.kind), " and ", static_cast<int>(op.target.block.kind)));
  }
  OpArgs args = {};
  args.kind = *kind;
  args.element = ElementOf(layout.dtype());
  args.sums = other.block.kind == BlockKind::kBf16Partial ? Element::kBf16 : Element::kFp32;
  args.out_element = ElementOf(layout.out_dtype());
  args.source = BlockAtOf(layout, other);
  args.target = BlockAtOf(layout, op.target);
  args.value_dim = layout.value_dim();
  const Sections source = SectionsOf(layout, other.block);
  const Sections target = SectionsOf(layout, op.target.block);
  args.section_count = static_cast<int32_t>(target.size());
  for (size_t s = 0; s < target.size(); ++s)
    args.sections[s] = {source[s].offset, target[s].offset, target[s].head_bytes};
  args.max_offset = source[1].offset;
  args.weight_offset = source[2].offset;
  const Sections& gradient = *kind == OpKind::kDelta ? target : source;
  args.lse_offset = gradient[2].offset;
  args.lse_rest_offset = gradient.has(4) ? gradient[4].offset : -1;
  args.delta_offset = gradient[3].offset;
  args.d_out_offset = source.has(4) && *kind == OpKind::kDelta ? source[4].offset : -1;
  args.out_bytes = source[0].head_bytes;
  args.kept = job.spec->dropout ? static_cast<float>(1 - job.spec->dropout->rate) : 1.0f;
  args.lse_base_2 = job.spec->outputs.lse_base == LseBase::k2;
  SetRanges(other.block, op.target.block, &args);
  return args;
}

absl::StatusOr<OpArgs> MakeMergeArgs(const KernelJob& job, const KernelOp& op, int32_t partials,
                                     int64_t partial_bytes) {
  absl::StatusOr<OpArgs> args = MakeOpArgs(job, op);
  if (!args.ok()) return args;
  if (args->kind != OpKind::kMerge || args->sums != Element::kFp32)
    return absl::InternalError("only partials are merged");
  args->kind = OpKind::kMergeAll;
  args->partials = partials;
  args->partial_bytes = partial_bytes;
  return args;
}

absl::StatusOr<OpArgs> MakeMeansArgs(const KernelJob& job, Block block, const MeansAt& means,
                                     const BlockView& target) {
  block.kind = BlockKind::kPartial;
  absl::StatusOr<OpArgs> args =
      MakeOpArgs(job, {KernelOp::Kind::kMerge, BlockView{block, means.data}, target});
  if (!args.ok()) return args;
  if (target.block.kind != BlockKind::kPartial)
    return absl::InternalError("means are merged into partials only");
  args->kind = OpKind::kMergeMeans;
  args->source.row_bytes = means.row_bytes;
  args->sections[1].source = means.max_offset;
  args->sections[2].source = means.weight_offset;
  return args;
}

bool NeedsSinks(const KernelJob& job, const OpArgs& args) {
  return !job.spec->modifiers.sinks.empty() &&
         (args.kind == OpKind::kFinish || args.kind == OpKind::kSink);
}

}  // namespace annulus::cuda
