#ifndef ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_
#define ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/spec/spec.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Whether a job of the spec takes every tensor of a file that is its input. Those that can only be
// an answer are passed over: what our operations write and, for a forward job, gradients into its
// outputs and the answers by mask of files of test data (`full_output`, `causal_lse`, ...). With a
// kept state, what the state has is refused too. INVALID_ARGUMENT / UNKNOWN_TENSOR, with the names
// that the job takes.
absl::Status CheckInputNames(const SafetensorsFile& file, const AttentionSpec& spec);

// The same of a part that `annulus merge` reads: every tensor that our commands read or write is
// passed over where it is none of a part. Names the file.
absl::Status CheckPartialNames(const SafetensorsFile& file);

// Whether each name was left aside in one of the files at least. INVALID_ARGUMENT / MISSING_TENSOR,
// naming it: nobody has it.
absl::Status CheckLeftAside(const std::vector<SafetensorsFile>& files,
                            const std::vector<std::string>& names);

// INVALID_ARGUMENT / MISSING_TENSOR: a file has not what is needed, with what it has, or it was
// left aside.
absl::Status MissingTensor(const SafetensorsFile& file, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_INPUT_NAMES_H_
