#ifndef ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_
#define ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_

#include <cstdint>

#include "attention/spec/spec.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// Bytes of the tensors that AttendJob::WriteOutputs writes of a job, without the file's header.
// `input`: the file that the job is read from, or nullptr.
int64_t BytesToWrite(const AttentionSpec& spec, const SafetensorsFile* input);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_
