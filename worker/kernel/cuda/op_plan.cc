#include "worker/kernel/cuda/op_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/kernel/cuda/table_image.h"

namespace annulus::cuda {
namespace {

constexpr int64_t kFloat = 4, kBf16 = 2;

// One section of a block's row: an equal number of bytes for each head.
struct Section {
  int64_t offset = 0, head_bytes = 0;
};
struct Sections {
  std::array<Section, 4> list;
  int count = 0;
};

Sections SectionsOf(const BlockLayout& layout, const Block& block) {
  const BlockKind kind = block.kind;
  const int32_t heads = block.head_end - block.head_begin;
  const int64_t second = layout.SecondOffset(kind, heads), third = layout.ThirdOffset(kind, heads);
  const int64_t fourth = layout.FourthOffset(kind, heads);
  const int64_t element = BytesPerElement(layout.dtype());
  const int64_t dim = layout.head_dim(), value_dim = layout.value_dim();
  const Section dims{0, dim * element};
  switch (kind) {
    case BlockKind::kQ:
    case BlockKind::kDqOut:
      return {{dims}, 1};
    case BlockKind::kKv:
    case BlockKind::kDkvOut:
      return {{dims, {second, value_dim * element}}, 2};
    case BlockKind::kQGrad:
      return {{dims, {second, value_dim * element}, {third, kFloat}, {fourth, kFloat}}, 4};
    case BlockKind::kPartial:
      return {{{{0, value_dim * kFloat}, {second, kFloat}, {third, kFloat}}}, 3};
    case BlockKind::kBf16Partial:
      return {{{{0, value_dim * kBf16}, {second, kFloat}, {third, kFloat}}}, 3};
    case BlockKind::kDq:
      return {{{{0, dim * kFloat}}}, 1};
    case BlockKind::kDkv:
      return {{{{0, dim * kFloat}, {second, value_dim * kFloat}}}, 2};
    case BlockKind::kDSinkOut:
      return {{{{0, kFloat}}}, 1};
    case BlockKind::kDBias:
      return {{{{0, layout.pairs().width * kFloat}}}, 1};
    case BlockKind::kOut:
      return {{{{0, value_dim * BytesPerElement(layout.out_dtype())},
                {second, kFloat},
                {third, kFloat}}},
              layout.max_logit() ? 3 : 2};
    case BlockKind::kPairs:
      break;  // Nothing is done to it.
  }
  return {};
}

bool IsGradient(BlockKind kind) {
  return kind == BlockKind::kDq || kind == BlockKind::kDkv || kind == BlockKind::kDBias;
}

// Absent where the operation is not made for these kinds.
std::optional<OpKind> OpKindOf(KernelOp::Kind op, BlockKind source, BlockKind target) {
  const bool same = source == target;
  switch (op) {
    case KernelOp::Kind::kIdentity:
      if (target == BlockKind::kPartial) return OpKind::kEmptyState;
      if (IsGradient(target)) return OpKind::kZero;
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
      if (same && IsGradient(target)) return OpKind::kAdd;
      break;
    case KernelOp::Kind::kFinish:
      if (source == BlockKind::kPartial && target == BlockKind::kOut) return OpKind::kFinish;
      if (source == BlockKind::kDq && target == BlockKind::kDqOut) return OpKind::kRound;
      if (source == BlockKind::kDkv && target == BlockKind::kDkvOut) return OpKind::kRound;
      break;
    case KernelOp::Kind::kCopy:
      if (same && target != BlockKind::kPairs) return OpKind::kCopy;
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

int32_t CopyUnit(const OpArgs& args) {
  auto all = reinterpret_cast<uintptr_t>(args.source.data) |
             reinterpret_cast<uintptr_t>(args.target.data) |
             static_cast<uintptr_t>(args.source.row_bytes | args.target.row_bytes);
  for (int s = 0; s < args.section_count; ++s) {
    const OpSection& section = args.sections[s];
    all |= static_cast<uintptr_t>(section.source | section.target | section.bytes);
  }
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 2;
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
  args.section_count = target.count;
  for (int s = 0; s < target.count; ++s)
    args.sections[s] = {source.list[s].offset, target.list[s].offset, target.list[s].head_bytes};
  args.max_offset = source.list[1].offset;
  args.weight_offset = source.list[2].offset;
  const Sections& gradient = *kind == OpKind::kDelta ? target : source;
  args.lse_offset = gradient.list[2].offset;
  args.delta_offset = gradient.list[3].offset;
  args.out_bytes = source.list[0].head_bytes;
  args.kept = job.spec->dropout ? static_cast<float>(1 - job.spec->dropout->rate) : 1.0f;
  args.lse_base_2 = job.spec->outputs.lse_base == LseBase::k2;
  args.copy_unit = CopyUnit(args);
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

bool NeedsSinks(const KernelJob& job, const OpArgs& args) {
  return !job.spec->modifiers.sinks.empty() &&
         (args.kind == OpKind::kFinish || args.kind == OpKind::kSink);
}

}  // namespace annulus::cuda
