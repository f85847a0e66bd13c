#ifndef ANNULUS_WORKER_KERNEL_CUDA_OP_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OP_ARGS_H_

#include "worker/kernel/cuda/forward_args.h"

namespace annulus::cuda {

// What is done to the rows and heads that two blocks share: KernelOp, by the kinds of its blocks.
enum class OpKind : int32_t {
  kEmptyState,  // Partials: nothing seen.
  kZero,
  kMerge,
  kMergeAll,  // Several partials, one after the other.
  // A partial whose sums are divided by its weights already, over keys that every row sees.
  kMergeMeans,
  kAdd,
  kFinish,      // Partials to outputs.
  kRound,       // fp32 gradients to theirs.
  kRoundState,  // Partials to those with sums in bf16.
  kDelta,
  kSink,
};

// A section of a block's row, as it lies on either side: `bytes` of each head of the target.
struct OpSection {
  int64_t source, target, bytes;
};

struct OpArgs {
  OpKind kind;
  Element element;  // Of what is rounded to, and of d_out.
  BlockAt source, target;
  OpSection sections[4];  // kFinish: the target's (output, LSE, max_logit).
  int32_t section_count;
  int32_t row_begin, head_begin, heads;
  int64_t cells;          // Rows times heads.
  int32_t partials;       // kMergeAll: so many sources …
  int64_t partial_bytes;  // … at such a distance.
  int32_t value_dim;
  Element sums;                       // Of the source of kMerge.
  Element out_element;                // Of outputs …
  int64_t out_bytes;                  // … and of a head of them: kDelta.
  int64_t max_offset, weight_offset;  // In a row of the source of kFinish.
  int64_t lse_offset, delta_offset;   // In a row of gradients' queries: kSink, kDelta.
  const std::byte* sinks;             // float of each query head; nullptr: none.
  float kept;                         // 1 − dropout rate.
  bool lse_base_2;
};

inline constexpr int kOpCells = kThreads / 32;  // Of a block of threads: a warp does one.

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OP_ARGS_H_
