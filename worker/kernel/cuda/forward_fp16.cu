#include "worker/kernel/cuda/forward_kernel.cuh"

namespace annulus::cuda {

CompiledForward CompiledFp16(const ForwardKind& kind) {
  return CompiledElement<Element::kFp16>(kind);
}

}  // namespace annulus::cuda
