#include "worker/backend/cudnn_check.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "worker/backend/self_check.h"

namespace annulus {
namespace {

// If cuDNN refuses all work, the results come from the other kernel and prove nothing.
absl::Status WithItsPart(const std::string& what, const std::function<int64_t()>& rectangles,
                         const std::function<absl::Status()>& check) {
  const int64_t before = rectangles();
  const absl::Status status = check();
  if (!status.ok()) {
    return MakeError(status.code(), absl::StrCat(what, ": ", status.message()), DetailOf(status));
  }
  if (rectangles() > before) return status;
  return MakeError(absl::StatusCode::kInternal, absl::StrCat(what, ": cuDNN computed none of it"),
                   {"KERNEL_SELF_CHECK_FAILED", {}, {}, {}});
}

std::string NameOf(const AttentionSpec& spec) {
  return absl::StrCat(DataTypeName(spec.dtype), ", ", spec.q_rows(), " rows, ", spec.kv_rows(),
                      " keys");
}

}  // namespace

std::vector<AttentionSpec> CudnnCheckSpecs() {
  std::vector<AttentionSpec> specs;
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    AttentionSpec& spec = specs.emplace_back();
    spec.dtype = dtype;
    spec.q_heads = 2;
    spec.kv_heads = 1;
    spec.head_dim = spec.head_dim_v = 64;
    // A product of vectors with elements in [−1, 1) is about √dim / 3.
    spec.scale = 9 / std::sqrt(static_cast<double>(spec.head_dim));
    spec.sequences.resize(1);
    spec.sequences[0].q_len = 300;
    spec.sequences[0].kv_len = 2500;
  }
  return specs;
}

absl::Status CheckCudnn(AttentionKernel& kernel, AttentionKernel& yardstick, Device* device,
                        const std::function<int64_t()>& rectangles) {
  RETURN_IF_ERROR(WithItsPart("small jobs", rectangles,
                              [&] { return CheckKernel(kernel, yardstick, device); }));
  RETURN_IF_ERROR(WithItsPart("shapes", rectangles,
                              [&] { return CheckKernelsByShape(kernel, yardstick, device); }));
  RETURN_IF_ERROR(WithItsPart("NaN and infinities", rectangles,
                              [&] { return CheckNonfinite(kernel, yardstick, device); }));
  for (const AttentionSpec& spec : CudnnCheckSpecs()) {
    RETURN_IF_ERROR(WithItsPart(NameOf(spec), rectangles,
                                [&] { return CheckForward(spec, kernel, yardstick, device); }));
  }
  return absl::OkStatus();
}

}  // namespace annulus
