#include "attention/schedule/model/block_layout.h"

namespace annulus {
namespace {

constexpr int64_t kFp32Bytes = 4;
constexpr int64_t kBf16Bytes = 2;

int64_t PadTo4(int64_t bytes) { return (bytes + 3) / 4 * 4; }

// Heads per row of a tensor that has `all` heads; 1 means one head for all.
int64_t HeadsOf(int32_t all, int32_t heads) { return all == 1 ? 1 : heads; }

}  // namespace

BlockLayout::BlockLayout(const AttentionSpec& spec)
    : dtype_(spec.dtype),
      out_dtype_(spec.output_dtype()),
      head_dim_(spec.head_dim),
      value_dim_(spec.value_dim()),
      group_(spec.kv_heads > 0 ? spec.q_heads / spec.kv_heads : 1),
      max_logit_(spec.outputs.max_logit),
      lse_rest_(spec.has_lse_rest()),
      forward_(spec.operation == Operation::kForward),
      rounds_d_out_(!forward_ && spec.d_out_dtype() != spec.dtype),
      pairs_(spec) {}

int64_t BlockLayout::SecondOffset(BlockKind kind, int32_t heads) const {
  const int64_t n = heads;
  switch (kind) {
    case BlockKind::kKv:
    case BlockKind::kQGrad:
    case BlockKind::kDkvOut:
      return n * head_dim_ * BytesPerElement(dtype_);
    case BlockKind::kPartial:
      return n * value_dim_ * kFp32Bytes;
    case BlockKind::kBf16Partial:
      return PadTo4(n * value_dim_ * kBf16Bytes);
    case BlockKind::kOut:
      return PadTo4(n * value_dim_ * BytesPerElement(out_dtype_));
    case BlockKind::kDkv:
      return n * head_dim_ * kFp32Bytes;
    case BlockKind::kPairs:
      if (!pairs_.has_bias) return 0;
      return PadTo4(HeadsOf(pairs_.bias_heads, heads) * pairs_.bias_bytes());
    case BlockKind::kQ:
    case BlockKind::kDq:
    case BlockKind::kDqOut:
    case BlockKind::kDSinkOut:
    case BlockKind::kDBias:
      break;
  }
  return RowBytes(kind, heads);
}

int64_t BlockLayout::ThirdOffset(BlockKind kind, int32_t heads) const {
  const int64_t n = heads;
  switch (kind) {
    case BlockKind::kPartial:
      return n * (value_dim_ + 1) * kFp32Bytes;
    case BlockKind::kQGrad:
      return PadTo4(n * (head_dim_ + value_dim_) * BytesPerElement(dtype_));
    case BlockKind::kOut:
    case BlockKind::kBf16Partial:
      return SecondOffset(kind, heads) + n * kFp32Bytes;
    case BlockKind::kPairs:
      return PadTo4(SecondOffset(kind, heads) +
                    (pairs_.has_bits ? HeadsOf(pairs_.bit_heads, heads) * pairs_.bit_bytes() : 0));
    default:
      return RowBytes(kind, heads);
  }
}

int64_t BlockLayout::FourthOffset(BlockKind kind, int32_t heads) const {
  if (kind == BlockKind::kQGrad) return ThirdOffset(kind, heads) + heads * kFp32Bytes;
  if (kind == BlockKind::kOut)
    return ThirdOffset(kind, heads) + (max_logit_ ? heads * kFp32Bytes : 0);
  return RowBytes(kind, heads);
}

int64_t BlockLayout::FifthOffset(BlockKind kind, int32_t heads) const {
  if (kind == BlockKind::kQGrad) return FourthOffset(kind, heads) + heads * kFp32Bytes;
  if (kind == BlockKind::kOut)
    return FourthOffset(kind, heads) + (lse_rest(kind) ? heads * kFp32Bytes : 0);
  return RowBytes(kind, heads);
}

int64_t BlockLayout::SectionOffset(BlockKind kind, int32_t heads, int index) const {
  if (index == 0) return 0;
  if (index == 1) return SecondOffset(kind, heads);
  if (index == 2) return ThirdOffset(kind, heads);
  return index == 3 ? FourthOffset(kind, heads) : FifthOffset(kind, heads);
}

int64_t BlockLayout::RowBytes(BlockKind kind, int32_t heads) const {
  const int64_t n = heads;
  switch (kind) {
    case BlockKind::kQ:
    case BlockKind::kDqOut:
      return PadTo4(n * head_dim_ * BytesPerElement(dtype_));
    case BlockKind::kKv:
    case BlockKind::kDkvOut:
      return PadTo4(n * (head_dim_ + value_dim_) * BytesPerElement(dtype_));
    case BlockKind::kQGrad:
      return FifthOffset(kind, heads) + (lse_rest(kind) ? n * kFp32Bytes : 0);
    case BlockKind::kPartial:
      return n * (value_dim_ + 2) * kFp32Bytes;
    case BlockKind::kBf16Partial:
      return SecondOffset(kind, heads) + n * kFp32Bytes * 2;
    case BlockKind::kOut:
      return FifthOffset(kind, heads) + (rounds_d_out_ ? n * value_dim_ * kFp32Bytes : 0);
    case BlockKind::kDq:
      return n * head_dim_ * kFp32Bytes;
    case BlockKind::kDSinkOut:
      return n * kFp32Bytes;
    case BlockKind::kDkv:
      return n * (head_dim_ + value_dim_) * kFp32Bytes;
    case BlockKind::kDBias:
      return n * pairs_.width * kFp32Bytes;
    case BlockKind::kPairs:
      return ThirdOffset(kind, heads) + (pairs_.has_offset ? n * kFp32Bytes : 0);
  }
  return 0;
}

int64_t BlockLayout::BlockBytes(const Block& block) const {
  return (block.row_end - block.row_begin) *
         RowBytes(block.kind, block.head_end - block.head_begin);
}

}  // namespace annulus
