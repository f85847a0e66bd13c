#ifndef ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_
#define ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"
#include "base/command_line.h"
#include "client/cli/files/attend_job.h"

namespace annulus {

// The number of visible keys on either side of a row.
struct WindowFlag {
  int64_t left = 0;
  std::optional<int64_t> right;  // Absent: no limit.
};

// Flags that replace fields of a spec. Absent or empty: as the spec says.
struct SpecFlags {
  std::string mask;
  std::optional<WindowFlag> window;
  std::optional<double> scale, soft_cap;
  std::optional<Dropout> dropout;
  std::string lse_base, out_dtype;
  std::optional<bool> deterministic;
  std::string arithmetic;
};

// Adds the flags and returns their options. There is no --lse-base if `operation` is gradients.
std::vector<AddedFlag> AddSpecFlags(CommandLine* app, std::optional<Operation> operation,
                                    SpecFlags* flags);

// Replaces a field of the spec for each flag that is set. INVALID_ARGUMENT / BAD_SPEC for a window
// if the spec has several masks, or a mask for some heads only: the flag does not select a mask.
absl::Status PutOver(const SpecFlags& flags, v1::AttentionSpec* spec);

// The job's flags of `attend`, `gradients` and `plan`.
struct JobFlags {
  std::string input;
  std::vector<std::string> ignored_tensors;  // Tensors of `input` that are not read.
  // The layout of the tensors in `input` and in the output.
  std::string tensor_layout = "auto";
  std::optional<SyntheticShape> synthetic;
  std::string spec_file;
  std::optional<Operation> operation;  // The command's operation; absent: the spec's.
  SpecFlags spec;
  bool lse_rest = false;       // True: an output too; false: as the spec says.
  absl::Duration keep_for;     // Time to keep a forward job's state; 0: as the spec says.
  std::optional<bool> d_bias;  // Absent: as the spec says.
  std::string handle;          // The job whose kept state is used; empty: none.
  bool or_upload = false;      // True: send all inputs if that state is gone.
  bool release = false;        // True: release that state after writing.
  std::string strategy = "auto";
  std::string layout = "auto";
  int64_t stripe = 0;
  int64_t world_size = 0;
  int64_t ulysses_degree = 0, ring_degree = 0, inner_ring_degree = 0;
  std::string head_deal = "auto";
  bool bf16_partials = false;
  int64_t priority = 0;
  // The program's options --spec and those that replace fields of the spec.
  std::vector<AddedFlag> spec_options;
};
// Adds the flags for flags->operation.
void AddJobFlags(CommandLine* app, JobFlags* flags);
// Adds --ignore-tensors, for commands that refuse tensors with unknown names.
AddedFlag AddIgnoredTensors(CommandLine* app, std::vector<std::string>* names);

// The requested job, without the bytes of its tensors.
struct JobRequest {
  AttentionSpec spec;
  Execution execution;
  JobShape shape;
  std::optional<SafetensorsFile> file;
  std::optional<SyntheticShape> synthetic;
  bool says_lse_base = false;  // True if the spec gives the base, which is then not checked.
};

// Reads the files and applies the flags to the spec: each flag replaces exactly its field. Without
// an input (plan only) the spec must be complete. Errors: those of the files, CompleteSpec() and
// Validate(); INVALID_ARGUMENT / BAD_SPEC if the spec is for another operation than the command's.
absl::StatusOr<JobRequest> ReadJob(const JobFlags& flags);

// A gradients job with the kept state of `job`, which determines everything that the flags do not.
// Errors: those of SpecOfState(), of the input and of Validate().
absl::StatusOr<JobRequest> ReadStateJob(const JobFlags& flags, const v1::Job& job);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_
