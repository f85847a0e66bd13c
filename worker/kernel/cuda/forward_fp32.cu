#include "worker/kernel/cuda/forward_kernel.cuh"

namespace annulus::cuda {

CompiledForward CompiledFp32(const ForwardKind& kind) {
  return CompiledElement<Element::kFp32>(kind);
}

}  // namespace annulus::cuda
