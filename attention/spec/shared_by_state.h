#ifndef ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_
#define ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_

#include "attention/spec/spec.h"

namespace annulus {

// What a forward job whose state is kept and gradients that use it must agree in, as a forward
// spec: all but how either is computed and what else a forward job is asked for.
AttentionSpec SharedByState(AttentionSpec spec);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_SHARED_BY_STATE_H_
