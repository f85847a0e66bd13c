#include "client/cli/files/output_rows.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "client/cli/verify/verify.h"

namespace annulus {
namespace {

AttentionSpec ForwardOf(AttentionSpec spec) {
  spec.operation = Operation::kForward;
  spec.gradients = {};
  spec.outputs = {};
  // It is unknown if the fp32 forward job multiplied in bf16x3; allow for it.
  if (spec.dtype == DataType::kFp32) spec.arithmetic = Arithmetic::kBf16x3;
  return spec;
}

}  // namespace

absl::Status CheckOutputOfRows(const AttentionSpec& spec,
                               const std::map<TensorId, const std::byte*>& tensors, int64_t count,
                               uint64_t seed, bool bf16_partials) {
  const auto data = [&](TensorId id) {
    const auto found = tensors.find(id);
    return found == tensors.end() ? nullptr : found->second;
  };
  VerifyInput input;
  input.q = data(TensorId::kQ);
  input.k = data(TensorId::kK);
  input.v = data(TensorId::kV);
  input.out = data(TensorId::kOut);
  input.lse = data(TensorId::kLse);
  input.bias = data(TensorId::kBias);
  input.bit_mask = data(TensorId::kBitMask);
  input.lse_offset = data(TensorId::kLseOffset);
  input.bf16_partials = bf16_partials;
  const AttentionSpec forward = ForwardOf(spec);
  ASSIGN_OR_RETURN(const VerifyReport report, VerifyRows(forward, input, count, seed));
  // CheckLseOfRows() checks the LSE.
  if (report.output_error <= report.output_budget) return absl::OkStatus();
  const std::string off = absl::StrFormat("%.3g", report.output_error),
                    allowed = absl::StrFormat("%.3g", report.output_budget);
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the output of head ", report.worst_head,
                                " does not match these inputs: off by ", off, ", ", allowed,
                                " is allowed; dropout, v, mask, modifiers and sequences must be "
                                "those of the forward job"),
                   {"OUTPUT_MISMATCH",
                    {{"head", absl::StrCat(report.worst_head)}, {"off", off}, {"allowed", allowed}},
                    {},
                    {}});
}

}  // namespace annulus
