#include "tests/kernel/cuda/emulated_hopper.h"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernel/cuda/emulated_hopper_gpu.h"
#include "worker/kernel/cuda/hopper_block.h"

namespace annulus::cuda {
namespace {

template <Element ELEMENT>
void Start(int dim, const ForwardArgs& args, int64_t number, int64_t blocks,
           HopperMachine* machine) {
  WithHopperConfigOf<ELEMENT>(dim, [&](auto config) {
    using Config = decltype(config);
    machine->Start(number, Config::kSharedBytes, [=, &args](int thread) {
      EmulatedHopperGpu gpu{machine, thread, kHopperThreads, blocks};
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
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<HopperMachine>> running;
  for (int64_t number = 0; number < blocks; ++number) {
    running.push_back(std::make_unique<HopperMachine>(kHopperThreads, memory, random()));
    if (kind.element == Element::kBf16)
      Start<Element::kBf16>(kind.dim, args, number, blocks, running.back().get());
    else
      Start<Element::kFp16>(kind.dim, args, number, blocks, running.back().get());
  }
  while (!running.empty()) {
    const auto at = running.begin() + static_cast<std::ptrdiff_t>(random() % running.size());
    if ((*at)->Step()) continue;
    if (!(*at)->fault().empty()) return absl::StrCat((*at)->fault(), " (seed ", seed, ")");
    running.erase(at);
  }
  return "";
}

}  // namespace annulus::cuda
