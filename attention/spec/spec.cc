#include "attention/spec/spec.h"

#include <cmath>

namespace annulus {

int64_t AttentionSpec::q_rows() const {
  int64_t rows = 0;
  for (const Sequence& sequence : sequences) rows += sequence.q_len;
  return rows;
}

int64_t AttentionSpec::kv_rows() const {
  int64_t rows = 0;
  for (const Sequence& sequence : sequences) rows += sequence.kv_len;
  return rows;
}

bool AttentionSpec::keeps_state() const {
  return operation == Operation::kForward && forward.keep_state.has_value();
}

bool AttentionSpec::uses_state() const {
  return operation == Operation::kGradients && !gradients.state.empty();
}

double AttentionSpec::scale_or_default() const {
  return scale ? *scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

}  // namespace annulus
