#ifndef ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_
#define ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/spec/spec.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Checks that a job of the spec takes every tensor of its input file. Ignored are tensors that can
// only be results: outputs of any operation; for a forward job also d_out, d_lse and the test
// data's `full_output`, `causal_lse`, ... With a kept state, tensors that the state provides are
// refused too. INVALID_ARGUMENT / UNKNOWN_TENSOR, with the names that the job takes.
absl::Status CheckInputNames(const SafetensorsFile& file, const AttentionSpec& spec);

// CheckInputNames() for a partial of `annulus merge`. Ignores every tensor that other commands read
// or write. The error names the file.
absl::Status CheckPartialNames(const SafetensorsFile& file);

// Checks that each name of --ignore-tensors is in at least one of the files. INVALID_ARGUMENT /
// MISSING_TENSOR for the first that is not.
absl::Status CheckLeftAside(const std::vector<SafetensorsFile>& files,
                            const std::vector<std::string>& names);

// INVALID_ARGUMENT / MISSING_TENSOR: the file does not have tensor `name`, or --ignore-tensors
// excludes it. The message lists what the file has.
absl::Status MissingTensor(const SafetensorsFile& file, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_
