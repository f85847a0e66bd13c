#ifndef ANNULUS_ATTENTION_SPEC_OPERATION_H_
#define ANNULUS_ATTENTION_SPEC_OPERATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "attention/spec/dtype.h"

namespace annulus {

// The operation of a job. Mirrors the operations of annulus.v1.AttentionSpec without protobuf.
enum class Operation : uint8_t { kForward = 0, kGradients = 1 };
struct ForwardOptions {
  // How long the workers keep the state for gradients jobs. Absent: they do not keep it.
  std::optional<absl::Duration> keep_state;
};
struct GradientOptions {
  bool d_lse = false;   // True if the gradient of the LSE is another input.
  bool d_bias = false;  // True if the gradient of the bias is another output.
  // Element type of d_out: dtype, or fp32 if the output is fp32. Unspecified means dtype.
  DataType d_out_dtype = DataType::kUnspecified;
  std::string state;  // The forward job whose kept state lends the other inputs; empty: none.
  bool release_state = false;  // True if the state is released after this job.
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_OPERATION_H_
