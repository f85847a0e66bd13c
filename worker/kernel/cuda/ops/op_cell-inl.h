#ifndef ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_CELL_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_CELL_INL_H_

#include "worker/kernel/cuda/launch/op_args.h"
#include "worker/kernel/cuda/launch/table_reader.h"

namespace annulus::cuda {

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

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_OPS_OP_CELL_INL_H_
