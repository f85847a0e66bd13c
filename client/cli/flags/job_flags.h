#ifndef ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_
#define ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "annulus/v1/types.pb.h"
#include "attention/spec/spec.h"
#include "client/cli/files/attend_job.h"
#include "client/cli/flags/spec_flags.h"

namespace annulus {

// What to compute and how: flags of `attend` and `plan`.
struct JobFlags {
  std::string input;
  std::vector<std::string> ignored_tensors;  // Of it.
  std::string tensor_layout = "auto";        // Of it and of the output.
  std::optional<SyntheticShape> synthetic;
  std::string spec_file;
  std::optional<Operation> operation;  // That of the command; absent: as the spec says.
  SpecFlags spec;
  bool lse_rest = false;       // An output too; false: as the spec says.
  absl::Duration keep_for;     // State of a forward job; 0: as the spec says.
  std::optional<bool> d_bias;  // Absent: as the spec says.
  std::string handle;          // Of a kept state that gradients use.
  bool or_upload = false;      // Or do without, where it is gone.
  bool release = false;        // Of the state, when gradients are written.
  std::string strategy = "auto";
  std::string layout = "auto";
  int64_t stripe = 0;
  int64_t world_size = 0;
  int64_t ulysses_degree = 0, ring_degree = 0, inner_ring_degree = 0;
  std::string head_deal = "auto";
  bool bf16_partials = false;
  int64_t priority = 0;
  std::vector<const CLI::Option*> spec_options;  // Of the program: --spec and what replaces of it.
};
// For the operation that the flags name.
void AddJobFlags(CLI::App* app, JobFlags* flags);
// --ignore-tensors, for commands that refuse names that they do not know.
CLI::Option* AddIgnoredTensors(CLI::App* app, std::vector<std::string>* names);

// The job that the flags ask for, without its tensors' bytes.
struct JobRequest {
  AttentionSpec spec;
  Execution execution;
  JobShape shape;
  std::optional<SafetensorsFile> file;
  std::optional<SyntheticShape> synthetic;
  bool says_lse_base = false;  // The spec: it is taken at its word.
};

// Reads the files and puts the flags over the spec: each replaces exactly its field. Without an
// input (plan only) the spec must be whole. Errors: those of the files, CompleteSpec and Validate;
// BAD_SPEC where the spec says another operation than the command's.
absl::StatusOr<JobRequest> ReadJob(const JobFlags& flags);

// Gradients by the state that a job keeps, which says what the flags do not. Errors: those of the
// input, SpecOfState and Validate.
absl::StatusOr<JobRequest> ReadStateJob(const JobFlags& flags, const v1::Job& job);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_JOB_FLAGS_H_
