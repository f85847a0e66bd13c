#include "worker/kernel/cuda/forward_kernel.cuh"

namespace annulus::cuda {

CompiledForward CompiledBf16(const ForwardKind& kind) {
  return CompiledElement<Element::kBf16>(kind);
}

}  // namespace annulus::cuda
