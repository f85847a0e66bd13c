#include "tests/kernel/cuda/emulated_hopper.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/kernel/cuda/emulated_hopper_gpu.h"
#include "worker/kernel/cuda/hopper_block.h"

namespace annulus::cuda {
namespace {

template <Element ELEMENT>
std::string EmulateBlock(int dim, const ForwardArgs& args, int64_t number, HopperMachine* machine) {
  return WithHopperConfigOf<ELEMENT>(dim, [&](auto config) {
    using Config = decltype(config);
    return machine->Run(number, Config::kSharedBytes, [&](int thread) {
      EmulatedHopperGpu gpu{machine, thread};
      const HopperBlock<EmulatedHopperGpu, Config> forward{gpu, args};
      forward.Run(number);
    });
  });
}

}  // namespace

void EmulateMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) {
  for (size_t i = 0; i < maps.size(); ++i)
    std::memcpy(to + i * kMapBytes, &maps[i], sizeof(TensorMapSpec));
}

std::string EmulateHopper(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                          GlobalMemory* memory, uint64_t seed) {
  memory->NewLaunch();
  HopperMachine machine(kHopperThreads, memory, seed);
  for (int64_t number = 0; number < blocks; ++number) {
    const std::string fault = kind.element == Element::kBf16
                                  ? EmulateBlock<Element::kBf16>(kind.dim, args, number, &machine)
                                  : EmulateBlock<Element::kFp16>(kind.dim, args, number, &machine);
    if (!fault.empty()) return absl::StrCat(fault, " (seed ", seed, ")");
  }
  return "";
}

}  // namespace annulus::cuda
