#ifndef ANNULUS_WORKER_COMM_NCCL_WORDS_H_
#define ANNULUS_WORKER_COMM_NCCL_WORDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Whether NCCL's last error, in words, is of memory that CUDA or the system refused: it has no
// result of its own for that.
bool NcclSaysOutOfMemory(absl::string_view words);

// RESOURCE_EXHAUSTED / OUT_OF_MEMORY.
absl::Status NcclOutOfMemory(const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_WORDS_H_
