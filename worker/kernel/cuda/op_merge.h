#ifndef ANNULUS_WORKER_KERNEL_CUDA_OP_MERGE_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OP_MERGE_H_

#include "worker/kernel/cuda/op_cell.h"

namespace annulus::cuda {

// Partials into one.
template <class GPU>
struct OpMerge : OpCell<GPU> {
  using Base = OpCell<GPU>;
  using Base::args, Base::gpu, Base::lane;
  using Base::Read, Base::ReadAs, Base::SetState, Base::Share, Base::Source, Base::Target,
      Base::Write;

  ANNULUS_GPU void Merge(int64_t row, int64_t head) const {
    const float from_max = Read(Source(row, head, 1)), max = Read(Target(row, head, 1));
    const float from_weight = Read(Source(row, head, 2)), weight = Read(Target(row, head, 2));
    gpu.SyncWarp();  // Before the first lane writes what others read.
    if (from_max == -Infinity()) return;
    const bool take = max == -Infinity();
    const float top = max < from_max ? from_max : max;
    const float mine = Share(max, top), theirs = Share(from_max, top);
    const int64_t sum_bytes = int64_t{args.value_dim} * (args.sums == Element::kFp32 ? 4 : 2);
    const std::byte* from = At(args.source, row, head, 0, sum_bytes);
    std::byte* to = Target(row, head, 0);
    for (int i = lane; i < args.value_dim; i += 32) {
      const float more = ReadAs(args.sums, from, i);
      Write(to + i * 4, take ? more : mine * Read(to + i * 4) + theirs * more);
    }
    if (lane != 0) return;
    SetState(row, head, take ? from_max : top,
             take ? from_weight : mine * weight + theirs * from_weight);
  }

  // The bits of one Merge after the other; sums stay in registers between them. Partials are read
  // some at a time, so that their loads wait for memory together.
  ANNULUS_GPU void MergeAll(int64_t row, int64_t head) const {
    float max = Read(Target(row, head, 1)), weight = Read(Target(row, head, 2));
    std::byte* to = Target(row, head, 0);
    float sums[kOfLane];
    ReadSums(to, sums);
    gpu.SyncWarp();  // Before the first lane writes what others read.
    for (int first = 0; first < args.partials; first += kAtOnce) {
      float maxima[kAtOnce], weights[kAtOnce], more[kAtOnce][kOfLane];
      ANNULUS_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int partial = first + i < args.partials ? first + i : first;
        const int64_t at = partial * args.partial_bytes;
        maxima[i] = first + i == partial ? Read(Source(row, head, 1) + at) : -Infinity();
        weights[i] = Read(Source(row, head, 2) + at);
        ReadSums(Source(row, head, 0) + at, more[i]);
      }
      ANNULUS_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (maxima[i] == -Infinity()) continue;
        const bool take = max == -Infinity();
        const float top = max < maxima[i] ? maxima[i] : max;
        const float mine = Share(max, top), theirs = Share(maxima[i], top);
        ANNULUS_UNROLL
        for (int c = 0; c < kOfLane; ++c)
          sums[c] = take ? more[i][c] : mine * sums[c] + theirs * more[i][c];
        max = take ? maxima[i] : top;
        weight = take ? weights[i] : mine * weight + theirs * weights[i];
      }
    }
    ANNULUS_UNROLL
    for (int c = 0; c < kOfLane; ++c)
      if (lane + c * 32 < args.value_dim) Write(to + (lane + c * 32) * 4, sums[c]);
    if (lane == 0) SetState(row, head, max, weight);
  }

 private:
  static constexpr int kOfLane = kMaxDim / 32;
  static constexpr int kAtOnce = 8;

  ANNULUS_GPU void ReadSums(const std::byte* from, float (&sums)[kOfLane]) const {
    ANNULUS_UNROLL
    for (int c = 0; c < kOfLane; ++c)
      sums[c] = lane + c * 32 < args.value_dim ? Read(from + (lane + c * 32) * 4) : 0.0f;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OP_MERGE_H_
