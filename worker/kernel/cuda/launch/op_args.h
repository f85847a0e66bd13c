#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_

#include "worker/kernel/cuda/launch/forward_args.h"

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
  // kFinish: the target's (output, LSE, max_logit, lse_rest). One that is not there has no bytes.
  OpSection sections[5];
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
  // In a row of gradients' queries: kSink, kDelta. The rest of the LSE: −1 where there is none.
  int64_t lse_offset, lse_rest_offset, delta_offset;
  int64_t d_out_offset;    // kDelta: of a d_out in fp32 in a row of the source; −1: none.
  const std::byte* sinks;  // float of each query head; nullptr: none.
  float kept;              // 1 − dropout rate.
  bool lse_base_2;
};

template <OpKind KIND>
struct OpOf {
  static constexpr OpKind kKind = KIND;
  // Rows and heads that a block of threads does: where next to nothing is done to one, a thread has
  // it, else a warp.
  static constexpr int kCells = KIND == OpKind::kEmptyState ? kThreads : kThreads / 32;
};
// Calls `run` with the OpOf that is meant, and returns what it does.
template <class RUN>
auto WithOp(OpKind kind, const RUN& run) {
  switch (kind) {
    case OpKind::kEmptyState:
      return run(OpOf<OpKind::kEmptyState>());
    case OpKind::kZero:
      return run(OpOf<OpKind::kZero>());
    case OpKind::kMerge:
      return run(OpOf<OpKind::kMerge>());
    case OpKind::kMergeAll:
      return run(OpOf<OpKind::kMergeAll>());
    case OpKind::kMergeMeans:
      return run(OpOf<OpKind::kMergeMeans>());
    case OpKind::kAdd:
      return run(OpOf<OpKind::kAdd>());
    case OpKind::kFinish:
      return run(OpOf<OpKind::kFinish>());
    case OpKind::kRound:
      return run(OpOf<OpKind::kRound>());
    case OpKind::kRoundState:
      return run(OpOf<OpKind::kRoundState>());
    case OpKind::kDelta:
      return run(OpOf<OpKind::kDelta>());
    default:
      return run(OpOf<OpKind::kSink>());
  }
}

// Blocks of threads for all rows and heads.
inline int64_t OpBlocks(const OpArgs& args) {
  return WithOp(args.kind, [&](auto op) {
    return (args.cells + decltype(op)::kCells - 1) / decltype(op)::kCells;
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_
