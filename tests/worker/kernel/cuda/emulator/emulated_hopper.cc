#include "tests/worker/kernel/cuda/emulator/emulated_hopper.h"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/kernel/cuda/emulator/emulated_hopper_gpu.h"
#include "worker/kernel/cuda/sm90/hopper_block-inl.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_block-inl.h"

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

template <Element ELEMENT>
void Start(const GradientKind& kind, const GradientArgs& args, int64_t number, int64_t blocks,
           HopperMachine* machine) {
  WithHopperGradientConfigOf<ELEMENT>(kind, [&](auto config) {
    using Config = decltype(config);
    machine->Start(number, Config::kSharedBytes, [=, &args](int thread) {
      EmulatedHopperGpu gpu{machine, thread, kHopperThreads, blocks};
      const HopperGradientBlock<EmulatedHopperGpu, Config> gradients{gpu, args};
      gradients.Run(number);
    });
  });
}

// Runs up to `at_once` blocks concurrently. `start` starts one.
template <class START>
std::string RunBlocks(int64_t blocks, int64_t at_once, GlobalMemory* memory, uint64_t seed,
                      const START& start) {
  memory->NewLaunch();
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<HopperMachine>> running;
  for (int64_t next = 0; next < blocks || !running.empty();) {
    for (; next < blocks && static_cast<int64_t>(running.size()) < at_once; ++next) {
      running.push_back(std::make_unique<HopperMachine>(kHopperThreads, memory, random()));
      start(next, running.back().get());
    }
    const auto at = running.begin() + static_cast<std::ptrdiff_t>(random() % running.size());
    if ((*at)->Step()) continue;
    if (!(*at)->fault().empty()) return absl::StrCat((*at)->fault(), " (seed ", seed, ")");
    running.erase(at);
  }
  return "";
}

}  // namespace

void EmulateMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) {
  for (size_t i = 0; i < maps.size(); ++i)
    std::memcpy(to + i * kMapBytes, &maps[i], sizeof(TensorMapSpec));
}

std::string EmulateHopper(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                          GlobalMemory* memory, uint64_t seed) {
  return RunBlocks(blocks, blocks, memory, seed, [&](int64_t number, HopperMachine* machine) {
    if (kind.element == Element::kBf16)
      Start<Element::kBf16>(kind.dim, args, number, blocks, machine);
    else
      Start<Element::kFp16>(kind.dim, args, number, blocks, machine);
  });
}

std::string EmulateHopperGradients(const GradientKind& kind, const GradientArgs& args,
                                   int64_t blocks, GlobalMemory* memory, uint64_t seed) {
  constexpr int64_t kAtOnce = 3;
  return RunBlocks(blocks, kAtOnce, memory, seed, [&](int64_t number, HopperMachine* machine) {
    if (kind.forward.element == Element::kBf16)
      Start<Element::kBf16>(kind, args, number, blocks, machine);
    else
      Start<Element::kFp16>(kind, args, number, blocks, machine);
  });
}

}  // namespace annulus::cuda
