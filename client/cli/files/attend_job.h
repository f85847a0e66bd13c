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

// The value of --synthetic: "B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed". INVALID_ARGUMENT / BAD_SYNTHETIC
// with the problem.
struct SyntheticShape {
  JobShape shape;
  uint64_t seed = 0;
};
absl::StatusOr<SyntheticShape> ParseSynthetic(absl::string_view text);

// True if d_out in the file and the output (`out_dtype`) are fp32, whatever the type of q.
bool IsFp32DOut(const SafetensorsFile& file, DataType out_dtype);

// Completes a gradients spec from a file: the presence of d_lse and lse_rest, and the dtypes of the
// output and of d_out. INVALID_ARGUMENT: MISSING_TENSOR (no output), UNSUPPORTED_DTYPE.
absl::Status TakeGradientOptions(const SafetensorsFile& file, v1::AttentionSpec* spec);

// Fills in the fields that `given` leaves out, from the shape. INVALID_ARGUMENT: SHAPE_MISMATCH for
// a field that disagrees, DIM_OVERFLOW, LIMIT_EXCEEDED; errors of Validate() if `given` has packed
// sequences. Otherwise the result is not validated: call Validate().
absl::StatusOr<AttentionSpec> CompleteSpec(v1::AttentionSpec given, const JobShape& shape);

// A job with its memory: inputs from a file or synthetic, outputs allocated. Requires a validated
// spec. Movable.
class AttendJob {
 public:
  // Reads the inputs of the tensor table by their names:
  // - q, k, v, output and d_out in the layout of `shape`; output and d_out have v's last dimension
  // - lse, d_lse, lse_offset and lse_rest as WriteOutputs() writes lse
  // - bias and mask as in client/cli/files/bias_and_mask_files.h
  //
  // Tensors whose layout is that of jobs are used in place, others are copied. INVALID_ARGUMENT:
  // MISSING_TENSOR, SHAPE_MISMATCH, UNSUPPORTED_DTYPE; RESOURCE_EXHAUSTED / OUT_OF_MEMORY.
  static absl::StatusOr<AttendJob> FromFile(SafetensorsFile file, const AttentionSpec& spec,
                                            const JobShape& shape);
  static absl::StatusOr<AttendJob> Synthetic(const AttentionSpec& spec,
                                             const SyntheticShape& shape);

  const AttentionSpec& spec() const { return spec_; }
  bool is_from_file() const { return file_.has_value(); }
  // Sets spec, inputs and outputs. They refer to this object's memory, which must outlive the job.
  void FillArguments(AttendArguments* arguments);
  const std::byte* data(TensorId id) const { return pointers_.at(id).data(); }
  // All inputs and outputs of the job.
  std::map<TensorId, const std::byte*> tensors() const;
  int64_t bytes(Direction direction) const;
  uint32_t Crc32c(TensorId id) const;

  // Writes the outputs, with the notes of client/cli/files/lse_notes.h:
  // - `output` in the shape and layout of q, with v's last dimension
  // - `lse`, and `max_logit` and `lse_rest` if the spec asks for them: [heads, tokens] or [batch,
  //   heads, tokens]
  // - `dq`, `dk`, `dv` in the shapes and the layout of q, k, v; `d_sink` [heads]; `d_bias` as
  //   `bias`
  //
  // `bf16_partials` is that of the job's execution. Errors: FAILED_PRECONDITION / INPUT_CHANGED;
  // those of SafetensorsWriter::Commit().
  absl::Status WriteOutputs(SafetensorsWriter* file, bool bf16_partials = false) const;
  // True if the job has an LSE as input whose file does not give its base.
  bool LeavesLseBaseOpen() const;
  // True if partials of the forward job that made the inputs may have travelled in bf16.
  bool MayHaveBf16Partials() const;
  // SafetensorsFile::CheckUnchanged() of the inputs' file, if there is one.
  absl::Status CheckInputs() const;

 private:
  AttendJob(const AttentionSpec& spec, const JobShape& shape);
  absl::Status Allocate(const TensorInfo& tensor);
  absl::Status AllocateOutputs();
  absl::Status ReadInput(const TensorInfo& tensor);
  std::vector<int64_t> ShapeInFile(const TensorInfo& tensor) const;
  // The tensor in the file's layout. Tensors of one number for each row and head have dim 1.
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
