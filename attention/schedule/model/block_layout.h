#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_BLOCK_LAYOUT_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_BLOCK_LAYOUT_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/spec.h"

namespace annulus {

// How the bytes of a block lie in memory and in a message: row after row, nothing between rows, so
// that a range of rows is one contiguous piece. One row holds, in order:
//   kQ        q[heads][head_dim]                                   dtype
//   kKv       k[heads][head_dim], v[heads][value_dim]              dtype
//   kPartial  sum[heads][value_dim], max[heads], weight[heads]     fp32
//   kBf16Partial  the same, sum in bf16
//   kOut      out[heads][value_dim] in the output dtype, then fp32: lse[heads], max_logit[heads]
//             where the spec asks for it, lse_rest[heads] where a forward job has it, and
//             d_out[heads][value_dim] of a gradients job that has it in fp32 beside 16-bit inputs
//   kQGrad    q, d_out in dtype, then lse[heads], delta[heads] fp32, and lse_rest[heads] fp32 where
//             the job has it
//   kDq       dq[heads][head_dim]                                  fp32
//   kDkv      dk[heads][head_dim], dv[heads][value_dim]            fp32
//   kDqOut    as kQ
//   kDkvOut   as kKv
//   kDSinkOut d_sink[heads]                                        fp32
//   kPairs    bias[heads][width] in its dtype, then bits[heads][bytes] of the bit mask, each of one
//             head where that stands for all (attention/spec/bias_and_mask_inputs.h), then
//             offset[heads] fp32
//   kDBias    d_bias[heads][width], of one head where the bias has one     fp32
// Every row is padded to a multiple of 4 bytes, and the fp32 part of a mixed row starts at one.
class BlockLayout {
 public:
  static constexpr int kMaxSections = 5;

  explicit BlockLayout(const AttentionSpec& spec);  // Keeps copies of what it needs.

  int64_t RowBytes(BlockKind kind, int32_t heads) const;
  int64_t BlockBytes(const Block& block) const;
  // Offset in a row of the second section (v, max, lse, d_out, dv, bits), of the third (weight,
  // max_logit, lse of kQGrad, offset), of the fourth (delta, lse_rest of kOut) and of the fifth
  // (lse_rest of kQGrad, d_out of kOut). A section that the kind lacks begins where the next one
  // does, or where the row ends.
  int64_t SecondOffset(BlockKind kind, int32_t heads) const;
  int64_t ThirdOffset(BlockKind kind, int32_t heads) const;
  int64_t FourthOffset(BlockKind kind, int32_t heads) const;
  int64_t FifthOffset(BlockKind kind, int32_t heads) const;
  // Of section `index`, from 0 (the first) to kMaxSections - 1.
  int64_t SectionOffset(BlockKind kind, int32_t heads, int index) const;

  DataType dtype() const { return dtype_; }
  DataType out_dtype() const { return out_dtype_; }
  int32_t head_dim() const { return head_dim_; }
  int32_t value_dim() const { return value_dim_; }
  // Query heads that share one key/value head.
  int32_t group() const { return group_; }
  // Whether kOut has max_logit.
  bool max_logit() const { return max_logit_; }
  // Whether blocks of `kind` have lse_rest.
  bool lse_rest(BlockKind kind) const {
    return lse_rest_ && kind == (forward_ ? BlockKind::kOut : BlockKind::kQGrad);
  }
  // Whether d_out arrives in fp32, in kOut, and becomes the 16-bit d_out of kQGrad by kDelta.
  bool rounds_d_out() const { return rounds_d_out_; }
  const BiasAndMaskInputs& pairs() const { return pairs_; }

 private:
  DataType dtype_, out_dtype_;
  int32_t head_dim_, value_dim_, group_;
  bool max_logit_, lse_rest_, forward_, rounds_d_out_;
  BiasAndMaskInputs pairs_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_BLOCK_LAYOUT_H_
