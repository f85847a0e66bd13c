#ifndef ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_
#define ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_

#include "attention/spec/spec.h"

namespace annulus {

// The part of a spec in which a forward job that keeps its state and the gradients jobs that use
// the state must be equal. Returned as a forward spec without options of the operation, extra
// outputs and arithmetic.
AttentionSpec SharedByState(AttentionSpec spec);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_
