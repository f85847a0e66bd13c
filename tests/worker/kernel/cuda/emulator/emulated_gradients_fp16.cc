#include "tests/worker/kernel/cuda/emulator/emulated_gradients_of.h"

namespace annulus::cuda {

std::string EmulateGradientsOfFp16(const GradientKind& kind, const GradientArgs& args,
                                   int64_t number, EmulatedBlock* block) {
  return EmulateGradientsOf<Element::kFp16>(kind, args, number, block);
}

}  // namespace annulus::cuda
