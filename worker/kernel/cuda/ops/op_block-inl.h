#ifndef ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_BLOCK_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_BLOCK_INL_H_

#include "worker/kernel/cuda/launch/op_args.h"
#include "worker/kernel/cuda/launch/table_reader.h"

namespace annulus::cuda {

// The kernels of operations on whole blocks (KernelOp): the epilogues of a step. Included by
// compiled_kernels.cu, and by the tests' emulator. Start at OpBlock::Run. Merges are in OpMerge,
// and the arithmetic of states is in OpCell.

// log2(e) in two parts. The first has 29 bits, so that its product with a float is exact.
constexpr double kLog2eHigh = 0x1.7154765p+0, kLog2eLow = 0x1.5c17f0bbbe88p-31;

// The work on one row and head of running states, by a warp if it is much. The arithmetic, and its
// order, are those of attention/numerics/partial.h.
template <class GPU>
struct OpCell {
  GPU& gpu;
  const OpArgs& args;
  int lane = gpu.Thread() % 32;

  // exp(max − top); 0 if the row has seen no key.
  ANNULUS_GPU static float Share(float max, float top) {
    return max == -Infinity() ? 0.0f : GPU::Exp(max - top);
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
    const auto value_of = [&](float sum) {
      return empty ? 0.0f : lost ? nan : scale * sum / divisor + 0.0f;
    };
    const int64_t element = args.out_element == Element::kFp32 ? 4 : 2;
    const int64_t fours = Fours(from, to, element, args.value_dim);
    for (int64_t i = lane * 4; i < fours; i += 128) {
      auto four = gpu.template Load<FourFloats>(from + i * 4);
      ANNULUS_UNROLL
      for (int c = 0; c < 4; ++c) four.value[c] = value_of(four.value[c]);
      WriteFour(args.out_element, to, i, four);
    }
    for (int64_t i = fours + lane; i < args.value_dim; i += 32)
      WriteAs(args.out_element, to, i, value_of(Read(from + i * 4)));
    if (lane != 0) return;
    float lse = empty ? sink : top + GPU::Log(whole);
    if (args.lse_base_2) {
      const double natural = empty ? sink : top + GPU::LogDouble(whole);
      lse = static_cast<float>(natural * 1.44269504088896340736);  // log2(e)
      if (lse == -Infinity() && natural != -Infinity())
        lse = nan;  // Same as in attention/numerics/partial.cc.
    }
    Write(Target(row, head, 1), !empty && lost ? nan : lse);
    if (args.sections[2].bytes > 0)
      Write(Target(row, head, 2), empty ? max : weight == 0 || weight != weight ? nan : max);
    if (args.sections[3].bytes > 0)
      Write(Target(row, head, 3), empty || lost ? 0.0f : RestOf(lse, top, whole));
  }

  // Same as in attention/numerics/wide_lse.cc.
  ANNULUS_GPU float RestOf(float lse, float top, float weight) const {
    if (!(lse - lse == 0)) return 0;
    double high = top, low = GPU::LogDouble(weight);
    if (args.lse_base_2) {
      low = high * kLog2eLow + low * (kLog2eHigh + kLog2eLow);
      high = high * kLog2eHigh;
    }
    return static_cast<float>((high - static_cast<double>(lse)) + low);
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

  // The number of the `count` numbers that move in groups of four: floats at `from`, elements of
  // `element` bytes at `to`.
  ANNULUS_GPU static int64_t Fours(const std::byte* from, const std::byte* to, int64_t element,
                                   int64_t count) {
    const auto aligned = [](const std::byte* at, int64_t bytes) {
      return reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0;
    };
    return aligned(from, 16) && aligned(to, 4 * element) ? count / 4 * 4 : 0;
  }
  ANNULUS_GPU void WriteFour(Element element, std::byte* to, int64_t i,
                             const FourFloats& four) const {
    if (element == Element::kFp32) return gpu.template Store<FourFloats>(to + i * 4, four);
    const auto pack = [&](int at) {
      const float low = four.value[at], high = four.value[at + 1];
      return BitsAs<float>(element == Element::kBf16
                               ? GPU::template Pack<Element::kBf16>(low, high)
                               : GPU::template Pack<Element::kFp16>(low, high));
    };
    gpu.template Store<TwoFloats>(to + i * 2, TwoFloats{{pack(0), pack(2)}});
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
};

// Merges a partial with sums divided by its weights into one with undivided sums. Its rows have
// seen keys even if all scores are −infinity (docs/reference/numerics.md), or if NaN has hidden
// every max.
template <class GPU>
ANNULUS_GPU void MergeNormalized(const OpCell<GPU>& cell, int64_t row, int64_t head) {
  float from_max = cell.Read(cell.Source(row, head, 1));
  float from_weight = cell.Read(cell.Source(row, head, 2));
  const float max = cell.Read(cell.Target(row, head, 1));
  const float weight = cell.Read(cell.Target(row, head, 2));
  cell.gpu.SyncWarp();  // All lanes must have read before the first lane writes.
  const bool take = max == -Infinity(), lost = from_max == -Infinity();
  if (lost) {
    from_max = -BitsAs<float>(0x7f7fffffu);
    from_weight = from_weight != from_weight ? from_weight : 0.0f;
  }
  const float top = max < from_max ? from_max : max;
  const float mine = cell.Share(max, top), theirs = cell.Share(from_max, top);
  const std::byte* from = cell.Source(row, head, 0);
  std::byte* to = cell.Target(row, head, 0);
  for (int i = cell.lane; i < cell.args.value_dim; i += 32) {
    const float more = lost ? from_weight : from_weight * cell.Read(from + i * 4);
    cell.Write(to + i * 4, take ? more : mine * cell.Read(to + i * 4) + theirs * more);
  }
  if (cell.lane != 0) return;
  cell.SetState(row, head, take ? from_max : top,
                take ? from_weight : mine * weight + theirs * from_weight);
}

// Merges partials into one.
template <class GPU>
struct OpMerge : OpCell<GPU> {
  using Base = OpCell<GPU>;
  using Base::args, Base::gpu, Base::lane;
  using Base::Read, Base::ReadAs, Base::SetState, Base::Share, Base::Source, Base::Target,
      Base::Write;

  ANNULUS_GPU void Merge(int64_t row, int64_t head) const {
    const float from_max = Read(Source(row, head, 1)), max = Read(Target(row, head, 1));
    const float from_weight = Read(Source(row, head, 2)), weight = Read(Target(row, head, 2));
    gpu.SyncWarp();  // All lanes must have read before the first lane writes.
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

  // Merges several partials, with the bits of one Merge after the other. Sums stay in registers
  // between merges. Partials are read kAtOnce at a time, so that their loads overlap.
  ANNULUS_GPU void MergeAll(int64_t row, int64_t head) const {
    float max = Read(Target(row, head, 1)), weight = Read(Target(row, head, 2));
    std::byte* to = Target(row, head, 0);
    float sums[kOfLane];
    ReadSums(to, sums);
    gpu.SyncWarp();  // All lanes must have read before the first lane writes.
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

// The work of one thread block: an operation on blocks. Each operation is a kernel of its own. With
// one kernel for all, the operation with the most registers would leave the others too few threads
// to hide memory latency.
template <class GPU, OpKind KIND>
struct OpBlock : OpMerge<GPU> {
  using Base = OpCell<GPU>;
  using Base::args, Base::gpu, Base::lane;
  using Base::Fours, Base::Read, Base::ReadAs, Base::SetState, Base::Source, Base::Target,
      Base::Write, Base::WriteAs, Base::WriteFour;

  ANNULUS_GPU void Run(int64_t block) const {
    constexpr int kCells = OpOf<KIND>::kCells;
    const int64_t cell = block * kCells + gpu.Thread() / (kThreads / kCells);
    if (cell >= args.cells) return;
    // A 64-bit division takes as long as the rest of a row's work.
    const bool narrow = args.cells < (int64_t{1} << 31);
    const int64_t row = narrow ? static_cast<uint32_t>(cell) / static_cast<uint32_t>(args.heads)
                               : cell / args.heads;
    Act(args.row_begin + row, args.head_begin + (cell - row * args.heads));
  }

 private:
  ANNULUS_GPU void Act(int64_t row, int64_t head) const {
    if constexpr (KIND == OpKind::kEmptyState)
      SetState(row, head, -Infinity(), 0);
    else if constexpr (KIND == OpKind::kMerge)
      this->Merge(row, head);
    else if constexpr (KIND == OpKind::kMergeAll)
      this->MergeAll(row, head);
    else if constexpr (KIND == OpKind::kMergeMeans)
      MergeNormalized(*this, row, head);
    else if constexpr (KIND == OpKind::kRoundState)
      RoundState(row, head);
    else if constexpr (KIND == OpKind::kFinish)
      this->Finish(row, head);
    else if constexpr (KIND == OpKind::kDelta)
      Delta(row, head);
    else if constexpr (KIND == OpKind::kSink)
      Sink(row, head);
    else
      ForEachFloat(row, head);
  }

  ANNULUS_GPU void RoundState(int64_t row, int64_t head) const {
    const float max = Read(Source(row, head, 1)), weight = Read(Source(row, head, 2));
    if (lane == 0) SetState(row, head, max, weight);
    if (max == -Infinity()) return;
    const std::byte* from = At(args.source, row, head, 0, int64_t{args.value_dim} * 4);
    std::byte* to = Target(row, head, 0);
    for (int i = lane; i < args.value_dim; i += 32)
      WriteAs(Element::kBf16, to, i, Read(from + i * 4));
  }

  // kZero, kAdd, kRound. All sections are fp32, except the target's of kRound.
  ANNULUS_GPU void ForEachFloat(int64_t row, int64_t head) const {
    const int64_t element = KIND == OpKind::kRound && args.element != Element::kFp32 ? 2 : 4;
    for (int s = 0; s < args.section_count; ++s) {
      // A section's bytes are the target's.
      const int64_t count = args.sections[s].bytes / element;
      const std::byte* from = At(args.source, row, head, args.sections[s].source, count * 4);
      std::byte* to = Target(row, head, s);
      const int64_t fours =
          KIND == OpKind::kZero ? Fours(to, to, element, count) : Fours(from, to, element, count);
      for (int64_t i = lane * 4; i < fours; i += 128) ForFour(from, to, i);
      for (int64_t i = fours + lane; i < count; i += 32) ForOne(from, to, i);
    }
  }
  ANNULUS_GPU void ForFour(const std::byte* from, std::byte* to, int64_t i) const {
    FourFloats four = {{0, 0, 0, 0}};
    if constexpr (KIND != OpKind::kZero) four = gpu.template Load<FourFloats>(from + i * 4);
    if constexpr (KIND == OpKind::kRound) return WriteFour(args.element, to, i, four);
    if constexpr (KIND == OpKind::kAdd) {
      const auto sums = gpu.template Load<FourFloats>(to + i * 4);
      ANNULUS_UNROLL
      for (int c = 0; c < 4; ++c) four.value[c] = sums.value[c] + four.value[c];
    }
    gpu.template Store<FourFloats>(to + i * 4, four);
  }
  ANNULUS_GPU void ForOne(const std::byte* from, std::byte* to, int64_t i) const {
    if constexpr (KIND == OpKind::kRound)
      WriteAs(args.element, to, i, Read(from + i * 4));
    else if constexpr (KIND == OpKind::kAdd)
      Write(to + i * 4, Read(to + i * 4) + Read(from + i * 4));
    else
      Write(to + i * 4, 0.0f);
  }

  // Sections: out, d_out. An fp32 d_out is rounded first, as in worker/kernel/cpu/block_ops.cc.
  ANNULUS_GPU void Delta(int64_t row, int64_t head) const {
    std::byte* delta = At(args.target, row, head, args.delta_offset, 4);
    double sum = lane == 0 ? -static_cast<double>(Read(delta)) : 0.0;
    const std::byte* out = At(args.source, row, head, 0, args.out_bytes);
    std::byte* d_out = Target(row, head, 1);
    for (int i = lane; i < args.value_dim; i += 32) {
      if (args.d_out_offset >= 0) {
        const std::byte* given =
            At(args.source, row, head, args.d_out_offset, int64_t{args.value_dim} * 4);
        WriteAs(args.element, d_out, i, Read(given + i * 4));
      }
      sum += static_cast<double>(ReadAs(args.out_element, out, i)) *
             static_cast<double>(ReadAs(args.element, d_out, i));
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += gpu.ShuffleXor(sum, lanes);
    if (lane == 0) Write(delta, static_cast<float>(sum));
  }

  ANNULUS_GPU void Sink(int64_t row, int64_t head) const {
    if (lane != 0) return;
    const float lse = Read(At(args.source, row, head, args.lse_offset, 4));
    const float delta = Read(At(args.source, row, head, args.delta_offset, 4));
    const float rest =
        args.lse_rest_offset < 0 ? 0.0f : Read(At(args.source, row, head, args.lse_rest_offset, 4));
    const double share = GPU::ExpDouble(
        (static_cast<double>(Read(args.sinks + head * 4)) - static_cast<double>(lse)) -
        static_cast<double>(rest));
    const float value = static_cast<float>(-share * static_cast<double>(delta));
    Write(Target(row, head, 0), lse == -Infinity() ? 0.0f : value);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_BLOCK_INL_H_
