#ifndef ANNULUS_CLIENT_CLI_FILES_ATTEND_JOB_H_
#define ANNULUS_CLIENT_CLI_FILES_ATTEND_JOB_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"
#include "client/cli/files/bias_and_mask_files.h"
#include "client/cli/files/job_shape.h"
#include "client/cli/files/tensor_layout.h"
#include "client/cli/safetensors/safetensors.h"
#include "client/client.h"

namespace annulus {

// "B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed". INVALID_ARGUMENT / BAD_SYNTHETIC says what is wrong.
struct SyntheticShape {
  JobShape shape;
  uint64_t seed = 0;
};
absl::StatusOr<SyntheticShape> ParseSynthetic(absl::string_view text);

// Whether the file has a d_out in fp32, and the output is fp32 as well, whatever q is.
bool IsFp32DOut(const SafetensorsFile& file, DataType out_dtype);

// What a spec of gradients leaves out and a file shows: whether there are a d_lse and an lse_rest,
// and the dtypes of the output and of d_out. INVALID_ARGUMENT: MISSING_TENSOR, UNSUPPORTED_DTYPE.
absl::Status TakeGradientOptions(const SafetensorsFile& file, v1::AttentionSpec* spec);

// `given` with what it leaves out taken from the shape. INVALID_ARGUMENT / SHAPE_MISMATCH with the
// field where it disagrees. Whether the spec makes sense is Validate()'s question.
absl::StatusOr<AttentionSpec> CompleteSpec(v1::AttentionSpec given, const JobShape& shape);

// A job with its memory: inputs from a file or made, outputs allocated. Spec validated. Movable.
class AttendJob {
 public:
  // Inputs by their names in the tensor table, in the layout of the shape, those of another than
  // jobs have copied: output and d_out shaped as q with v's last dimension, lse and d_lse as
  // WriteOutputs writes lse, bias and bit mask as client/cli/files/bias_and_mask_files.h says.
  // INVALID_ARGUMENT as for ShapeOf.
  static absl::StatusOr<AttendJob> FromFile(SafetensorsFile file, const AttentionSpec& spec,
                                            const JobShape& shape);
  static absl::StatusOr<AttendJob> Synthetic(const AttentionSpec& spec,
                                             const SyntheticShape& shape);

  const AttentionSpec& spec() const { return spec_; }
  bool is_from_file() const { return file_.has_value(); }
  // Inputs and outputs of the arguments.
  void FillArguments(AttendArguments* arguments);
  const std::byte* data(TensorId id) const { return pointers_.at(id).data(); }
  // All that it has, inputs and outputs.
  std::map<TensorId, const std::byte*> tensors() const;
  int64_t bytes(Direction direction) const;
  uint32_t Crc32c(TensorId id) const;

  // `output` in the shape and layout of q with the last dimension of v, `lse`, and `max_logit`
  // where the spec asks for it, as [heads, tokens] or [batch, heads, tokens]; `dq`, `dk` and `dv`
  // in the shapes and the layout of q, k and v. With the notes of client/cli/files/lse_notes.h.
  // INPUT_CHANGED as below. `bf16_partials`: of the job's execution.
  absl::Status WriteOutputs(SafetensorsWriter* file, bool bf16_partials = false) const;
  // Whether it was given an LSE whose file does not say the base.
  bool LeavesLseBaseOpen() const;
  // Whether partials of the forward job whose answer is its input may have travelled in bf16.
  bool MayHaveBf16Partials() const;
  // Of the inputs' file, where there is one: SafetensorsFile::CheckUnchanged.
  absl::Status CheckInputs() const;

 private:
  AttendJob(const AttentionSpec& spec, const JobShape& shape);
  absl::Status Allocate(const TensorInfo& tensor);
  absl::Status AllocateOutputs();
  absl::Status ReadInput(const TensorInfo& tensor);
  std::vector<int64_t> ShapeInFile(const TensorInfo& tensor) const;
  // How a file has it, numbers of rows with a last dimension of 1.
  CallerTensor InFile(const TensorInfo& tensor) const;

  AttentionSpec spec_;
  JobShape shape_;
  FileTensor BiasGradientInFile(const TensorInfo& tensor) const;

  std::optional<SafetensorsFile> file_;
  std::map<TensorId, std::vector<std::byte>> memory_;
  std::map<TensorId, absl::Span<const std::byte>> pointers_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_ATTEND_JOB_H_
