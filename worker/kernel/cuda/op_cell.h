#ifndef ANNULUS_WORKER_KERNEL_CUDA_OP_CELL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OP_CELL_H_

#include "worker/kernel/cuda/op_args.h"
#include "worker/kernel/cuda/table_reader.h"

namespace annulus::cuda {

// What a warp does to one row and head of running states: the arithmetic of attention/partial.h,
// in its order.
template <class GPU>
struct OpCell {
  GPU& gpu;
  const OpArgs& args;
  int lane = gpu.Thread() % 32;

  // exp(max − top), and 0 where nothing was seen.
  ANNULUS_GPU static float Share(float max, float top) {
    return max == -Infinity() ? 0.0f : GPU::Exp(max - top);
  }

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

  ANNULUS_GPU void Finish(int64_t row, int64_t head) const {
    const int64_t sum_bytes = int64_t{args.value_dim} * 4;
    const std::byte* from = At(args.source, row, head, 0, sum_bytes);
    const float max = Read(At(args.source, row, head, args.max_offset, 4));
    const float weight = Read(At(args.source, row, head, args.weight_offset, 4));
    const bool has_sink = args.sinks != nullptr;
    const float sink = has_sink ? Read(args.sinks + head * 4) : -Infinity();
    const bool empty = max == -Infinity(), lost = weight == 0 && !has_sink;
    const float nan = BitsAs<float>(0x7fc00000u);
    const float top = max < sink ? sink : max;
    const float scale = has_sink ? Share(max, top) : 1.0f;
    const float whole = scale * weight + Share(sink, top);
    const float divisor = whole * args.kept;
    std::byte* to = Target(row, head, 0);
    for (int i = lane; i < args.value_dim; i += 32) {
      const float value = empty ? 0.0f : lost ? nan : scale * Read(from + i * 4) / divisor + 0.0f;
      WriteAs(args.out_element, to, i, value);
    }
    if (lane != 0) return;
    float lse = empty ? sink : top + GPU::Log(whole);
    if (args.lse_base_2) {
      const double natural = empty ? sink : top + GPU::LogDouble(whole);
      lse = static_cast<float>(natural * 1.44269504088896340736);   // log2(e)
      if (lse == -Infinity() && natural != -Infinity()) lse = nan;  // As attention/partial.cc says.
    }
    Write(Target(row, head, 1), !empty && lost ? nan : lse);
    if (args.section_count < 3) return;
    Write(Target(row, head, 2), empty ? max : weight == 0 || weight != weight ? nan : max);
  }

  ANNULUS_GPU std::byte* Source(int64_t row, int64_t head, int section) const {
    const OpSection& s = args.sections[section];
    return At(args.source, row, head, s.source, s.bytes);
  }
  ANNULUS_GPU std::byte* Target(int64_t row, int64_t head, int section) const {
    const OpSection& s = args.sections[section];
    return At(args.target, row, head, s.target, s.bytes);
  }
  ANNULUS_GPU float Read(const std::byte* at) const { return gpu.template Load<float>(at); }
  ANNULUS_GPU void Write(std::byte* at, float value) const { gpu.template Store<float>(at, value); }
  ANNULUS_GPU void SetState(int64_t row, int64_t head, float max, float weight) const {
    Write(Target(row, head, 1), max);
    Write(Target(row, head, 2), weight);
  }

  ANNULUS_GPU void WriteAs(Element element, std::byte* to, int64_t i, float value) const {
    if (element == Element::kFp32) return Write(to + i * 4, value);
    const uint32_t bits = element == Element::kBf16 ? GPU::template Pack<Element::kBf16>(value, 0)
                                                    : GPU::template Pack<Element::kFp16>(value, 0);
    gpu.template Store<uint16_t>(to + i * 2, static_cast<uint16_t>(bits));
  }
  ANNULUS_GPU float ReadAs(Element element, const std::byte* from, int64_t i) const {
    if (element == Element::kFp32) return Read(from + i * 4);
    const auto bits = gpu.template Load<uint16_t>(from + i * 2);
    return element == Element::kBf16 ? GPU::template ToFloat<Element::kBf16>(bits)
                                     : GPU::template ToFloat<Element::kFp16>(bits);
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OP_CELL_H_
