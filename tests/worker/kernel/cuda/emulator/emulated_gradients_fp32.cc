#include "tests/worker/kernel/cuda/emulator/emulated_gradients_of.h"

namespace annulus::cuda {

std::string EmulateGradientsOfFp32(const GradientKind& kind, const GradientArgs& args,
                                   int64_t number, EmulatedBlock* block) {
  return EmulateGradientsOf<Element::kFp32>(kind, args, number, block);
}

}  // namespace annulus::cuda
