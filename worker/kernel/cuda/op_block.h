#ifndef ANNULUS_WORKER_KERNEL_CUDA_OP_BLOCK_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OP_BLOCK_H_

#include "worker/kernel/cuda/op_means.h"

namespace annulus::cuda {

// One block of threads: an operation on blocks, one row and head for each warp.
template <class GPU>
struct OpBlock : OpCell<GPU> {
  using Base = OpCell<GPU>;
  using Base::args, Base::gpu, Base::lane;
  using Base::Read, Base::ReadAs, Base::SetState, Base::Source, Base::Target, Base::Write,
      Base::WriteAs;

  ANNULUS_GPU void Run(int64_t block) const {
    const int64_t cell = block * kOpCells + gpu.Thread() / 32;
    if (cell >= args.cells) return;
    const int64_t row = args.row_begin + cell / args.heads;
    const int64_t head = args.head_begin + cell % args.heads;
    switch (args.kind) {
      case OpKind::kEmptyState:
        if (lane == 0) SetState(row, head, -Infinity(), 0);
        return;
      case OpKind::kMerge:
        return this->Merge(row, head);
      case OpKind::kMergeAll:
        return this->MergeAll(row, head);
      case OpKind::kMergeMeans:
        return MergeMeans(*this, row, head);
      case OpKind::kRoundState:
        return RoundState(row, head);
      case OpKind::kFinish:
        return this->Finish(row, head);
      case OpKind::kDelta:
        return Delta(row, head);
      case OpKind::kSink:
        return Sink(row, head);
      default:
        return ForEachFloat(row, head);
    }
  }

 private:
  ANNULUS_GPU void RoundState(int64_t row, int64_t head) const {
    const float max = Read(Source(row, head, 1)), weight = Read(Source(row, head, 2));
    if (lane == 0) SetState(row, head, max, weight);
    if (max == -Infinity()) return;
    const std::byte* from = At(args.source, row, head, 0, int64_t{args.value_dim} * 4);
    std::byte* to = Target(row, head, 0);
    for (int i = lane; i < args.value_dim; i += 32)
      WriteAs(Element::kBf16, to, i, Read(from + i * 4));
  }

  // kZero, kAdd, kRound. Sections are of fp32, but for the target of kRound.
  ANNULUS_GPU void ForEachFloat(int64_t row, int64_t head) const {
    for (int s = 0; s < args.section_count; ++s) {
      const std::byte* from = Source(row, head, s);
      std::byte* to = Target(row, head, s);
      const int64_t element = args.element == Element::kFp32 ? 4 : 2;
      if (args.kind == OpKind::kRound) {
        // The section's bytes are the target's.
        const int64_t count = args.sections[s].bytes / element;
        from = At(args.source, row, head, args.sections[s].source, count * 4);
        for (int64_t i = lane; i < count; i += 32) WriteAs(args.element, to, i, Read(from + i * 4));
        continue;
      }
      for (int64_t i = lane; i < args.sections[s].bytes / 4; i += 32)
        Write(to + i * 4,
              args.kind == OpKind::kZero ? 0.0f : Read(to + i * 4) + Read(from + i * 4));
    }
  }

  // Sections: out, d_out.
  ANNULUS_GPU void Delta(int64_t row, int64_t head) const {
    std::byte* delta = At(args.target, row, head, args.delta_offset, 4);
    double sum = lane == 0 ? -static_cast<double>(Read(delta)) : 0.0;
    const std::byte* out = At(args.source, row, head, 0, args.out_bytes);
    const std::byte* d_out = Target(row, head, 1);
    for (int i = lane; i < args.value_dim; i += 32)
      sum += static_cast<double>(ReadAs(args.out_element, out, i)) *
             static_cast<double>(ReadAs(args.element, d_out, i));
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += gpu.ShuffleXor(sum, lanes);
    if (lane == 0) Write(delta, static_cast<float>(sum));
  }

  ANNULUS_GPU void Sink(int64_t row, int64_t head) const {
    if (lane != 0) return;
    const float lse = Read(At(args.source, row, head, args.lse_offset, 4));
    const float delta = Read(At(args.source, row, head, args.delta_offset, 4));
    const double share =
        GPU::ExpDouble(static_cast<double>(Read(args.sinks + head * 4)) - static_cast<double>(lse));
    const float value = static_cast<float>(-share * static_cast<double>(delta));
    Write(Target(row, head, 0), lse == -Infinity() ? 0.0f : value);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OP_BLOCK_H_
