#include "attention/spec/shared_by_state.h"

namespace annulus {

AttentionSpec SharedByState(AttentionSpec spec) {
  spec.operation = Operation::kForward;
  spec.forward = ForwardOptions();
  spec.gradients = GradientOptions();
  spec.outputs.max_logit = false;
  spec.outputs.lse_rest = false;
  spec.arithmetic = Arithmetic::kOfType;
  return spec;
}

}  // namespace annulus
