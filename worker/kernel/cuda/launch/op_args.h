#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// The operations on the rows and heads that two blocks share: KernelOp, by the kinds of its blocks.
enum class OpKind : int32_t {
  kEmptyState,  // Partials become the identity: no key seen.
  kZero,
  kMerge,
  kMergeAll,  // Several partials, one after the other.
  // A partial whose sums are already divided by its weights, over keys that every row sees.
  kMergeMeans,
  kAdd,
  kFinish,      // Partials to outputs.
  kRound,       // fp32 gradients to the output type.
  kRoundState,  // Partials to partials with sums in bf16.
  kDelta,
  kSink,
};

// A section of a block's row: the offset on either side, and the `bytes` of each head of the
// target.
struct OpSection {
  int64_t source, target, bytes;
};

struct OpArgs {
  OpKind kind;
  Element element;  // The type of rounded results, and of d_out.
  BlockAt source, target;
  // kFinish: the target's sections (output, LSE, max_logit, lse_rest). An absent one has no bytes.
  OpSection sections[5];
  int32_t section_count;
  int32_t row_begin, head_begin, heads;
  int64_t cells;          // Rows times heads.
  int32_t partials;       // kMergeAll: the number of sources …
  int64_t partial_bytes;  // … and the distance between them.
  int32_t value_dim;
  Element sums;                       // kMerge: the type of the source's sums.
  Element out_element;                // kDelta: the type of outputs …
  int64_t out_bytes;                  // … and the bytes of one head of them.
  int64_t max_offset, weight_offset;  // kFinish: in a row of the source.
  // kSink, kDelta: in a row of the gradients' queries. lse_rest_offset is −1 if there is none.
  int64_t lse_offset, lse_rest_offset, delta_offset;
  int64_t d_out_offset;    // kDelta: of an fp32 d_out in a row of the source; −1: none.
  const std::byte* sinks;  // float per query head; nullptr: none.
  float kept;              // 1 − dropout rate.
  bool lse_base_2;
};

template <OpKind KIND>
struct OpOf {
  static constexpr OpKind kKind = KIND;
  // Cells (rows × heads) of a thread block. A cell with almost no work takes one thread, others a
  // warp.
  static constexpr int kCells = KIND == OpKind::kEmptyState ? kThreads : kThreads / 32;
};
// Calls `run` with the OpOf for `kind`, and returns its result.
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

// Thread blocks for all rows and heads.
inline int64_t OpBlocks(const OpArgs& args) {
  return WithOp(args.kind, [&](auto op) {
    return (args.cells + decltype(op)::kCells - 1) / decltype(op)::kCells;
  });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_OP_ARGS_H_
