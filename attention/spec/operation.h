#ifndef ANNULUS_ATTENTION_SPEC_OPERATION_H_
#define ANNULUS_ATTENTION_SPEC_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "attention/spec/dtype.h"

namespace annulus {

// What a job computes: the operations of annulus.v1.AttentionSpec, free of protobuf.
enum class Operation : uint8_t { kForward = 0, kGradients = 1 };
struct ForwardOptions {
  // The state stays this long for gradients jobs; absent: it does not.
  std::optional<absl::Duration> keep_state;
};
struct GradientOptions {
  bool d_lse = false;   // A gradient into LSE is an input too.
  bool d_bias = false;  // That of the bias is an output too.
  // Element type of d_out: dtype, or fp32 where the output is fp32. Unspecified: dtype.
  DataType d_out_dtype = DataType::kUnspecified;
  std::string state;           // The forward job whose state lends the other inputs; empty: none.
  bool release_state = false;  // After this job.
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_OPERATION_H_
