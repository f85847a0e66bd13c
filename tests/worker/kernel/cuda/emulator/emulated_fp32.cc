#include "tests/worker/kernel/cuda/emulator/emulated_forward_of.h"

namespace annulus::cuda {

std::string EmulateFp32(const ForwardKind& kind, const ForwardArgs& args, int64_t number,
                        EmulatedBlock* block) {
  return EmulateElement<Element::kFp32>(kind, args, number, block);
}

}  // namespace annulus::cuda
