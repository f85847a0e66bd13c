#include "tests/worker/kernel/cuda/emulator/emulated_run.h"

#include "tests/worker/kernel/cuda/emulator/emulated_forward.h"
#include "tests/worker/kernel/cuda/emulator/emulated_gpu.h"
#include "tests/worker/kernel/cuda/emulator/emulated_gradients.h"
#include "worker/kernel/cuda/ops/op_block-inl.h"

namespace annulus::cuda {
namespace {

EmulatedForward ForwardOf(Element element) {
  if (element == Element::kFp32) return EmulateFp32;
  return element == Element::kFp16 ? EmulateFp16 : EmulateBf16;
}

EmulatedGradients GradientsOf(Element element) {
  if (element == Element::kFp32) return EmulateGradientsOfFp32;
  return element == Element::kFp16 ? EmulateGradientsOfFp16 : EmulateGradientsOfBf16;
}

}  // namespace

std::string EmulateForward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks,
                           GlobalMemory* memory) {
  memory->NewLaunch();
  EmulatedBlock block(kThreads, memory);
  for (int64_t number = 0; number < blocks; ++number) {
    std::string fault = ForwardOf(kind.element)(kind, args, number, &block);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string EmulateGradients(const GradientKind& kind, const GradientArgs& args, int64_t blocks,
                             GlobalMemory* memory) {
  memory->NewLaunch();
  EmulatedBlock block(kThreads, memory);
  for (int64_t number = 0; number < blocks; ++number) {
    std::string fault = GradientsOf(kind.forward.element)(kind, args, number, &block);
    if (!fault.empty()) return fault;
  }
  return "";
}

std::string EmulateOp(const OpArgs& args, int64_t blocks, GlobalMemory* memory) {
  memory->NewLaunch();
  EmulatedBlock block(kThreads, memory);
  for (int64_t number = 0; number < blocks; ++number) {
    std::string fault = block.Run(number, 0, [&](int thread) {
      EmulatedGpu gpu{&block, thread};
      WithOp(args.kind, [&](auto kind) {
        const OpBlock<EmulatedGpu, decltype(kind)::kKind> op{{{gpu, args}}};
        op.Run(number);
      });
    });
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace annulus::cuda
