#ifndef ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_
#define ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_

#include <cstdint>

#include "attention/spec/spec.h"
#include "client/cli/safetensors/safetensors.h"

namespace annulus {

// The bytes of the tensors that AttendJob::WriteOutputs() writes, without the header. `input` is
// the file of the job's inputs, or null.
int64_t BytesToWrite(const AttentionSpec& spec, const SafetensorsFile* input);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FILES_OUTPUT_BYTES_H_
