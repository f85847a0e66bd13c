#ifndef ANNULUS_CLIENT_OUTPUT_BYTES_H_
#define ANNULUS_CLIENT_OUTPUT_BYTES_H_

#include <cstdint>

#include "attention/spec.h"
#include "client/safetensors.h"

namespace annulus {

// Bytes of the tensors that AttendJob::WriteOutputs writes of a job, without the file's header.
// `input`: the file that the job is read from, or nullptr.
int64_t BytesToWrite(const AttentionSpec& spec, const SafetensorsFile* input);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_OUTPUT_BYTES_H_
