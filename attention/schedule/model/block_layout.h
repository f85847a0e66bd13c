#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_BLOCK_LAYOUT_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_BLOCK_LAYOUT_H_

#include <cstdint>

#include "attention/schedule/model/schedule_data.h"
#include "attention/spec/bias_and_mask_inputs.h"
#include "attention/spec/spec.h"

namespace annulus {

// The byte layout of a block in memory and in messages. Rows are stored one after another without
// gaps, so a range of rows is one contiguous piece. One row holds, in order:
//   kQ        q[heads][head_dim]                                   dtype
//   kKv       k[heads][head_dim], v[heads][value_dim]              dtype
//   kPartial  sum[heads][value_dim], max[heads], weight[heads]     fp32
//   kBf16Partial  the same, sum in bf16
//   kOut      out[heads][value_dim] in the output dtype, then fp32: lse[heads],
//             max_logit[heads] (if the spec asks for it), lse_rest[heads] (if a forward job
//             has it), d_out[heads][value_dim] (if a gradients job has an fp32 d_out and
//             16-bit inputs)
//   kQGrad    q, d_out in dtype, then fp32: lse[heads], delta[heads], lse_rest[heads]
//             (if the job has it)
//   kDq       dq[heads][head_dim]                                  fp32
//   kDkv      dk[heads][head_dim], dv[heads][value_dim]            fp32
//   kDqOut    as kQ
//   kDkvOut   as kKv
//   kDSinkOut d_sink[heads]                                        fp32
//   kPairs    bias[heads][width] in its dtype, then bits[heads][bytes] of the bit mask, then
//             offset[heads] fp32 (attention/spec/bias_and_mask_inputs.h). Bias and bits have
//             one head if that head is for all query heads.
//   kDBias    d_bias[heads][width], one head if the bias has one   fp32
// Every row is padded to a multiple of 4 bytes, and the fp32 part of a mixed row starts at a
// multiple of 4. Immutable.
class BlockLayout {
 public:
  static constexpr int kMaxSections = 5;

  explicit BlockLayout(const AttentionSpec& spec);  // Copies what it needs of `spec`.

  int64_t RowBytes(BlockKind kind, int32_t heads) const;
  int64_t BlockBytes(const Block& block) const;
  // Offsets of the sections of a row, in bytes. The second section is v, max, lse, d_out, dv or
  // bits. The third is weight, max_logit, lse of kQGrad, or offset. The fourth is delta, or
  // lse_rest of kOut. The fifth is lse_rest of kQGrad, or d_out of kOut. A section that the kind
  // lacks has the offset of the next section, or of the row's end.
  int64_t SecondOffset(BlockKind kind, int32_t heads) const;
  int64_t ThirdOffset(BlockKind kind, int32_t heads) const;
  int64_t FourthOffset(BlockKind kind, int32_t heads) const;
  int64_t FifthOffset(BlockKind kind, int32_t heads) const;
  // The offset of section `index`, from 0 (the first) to kMaxSections - 1.
  int64_t SectionOffset(BlockKind kind, int32_t heads, int index) const;

  DataType dtype() const { return dtype_; }
  DataType out_dtype() const { return out_dtype_; }
  int32_t head_dim() const { return head_dim_; }
  int32_t value_dim() const { return value_dim_; }
  // Query heads per key/value head.
  int32_t group() const { return group_; }
  // True if kOut has max_logit.
  bool max_logit() const { return max_logit_; }
  // True if blocks of `kind` have lse_rest.
  bool lse_rest(BlockKind kind) const {
    return lse_rest_ && kind == (forward_ ? BlockKind::kOut : BlockKind::kQGrad);
  }
  // True if d_out arrives in fp32, in kOut. kDelta then converts it to the 16-bit d_out of kQGrad.
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
