#ifndef ANNULUS_WORKER_COMM_NCCL_WORDS_H_
#define ANNULUS_WORKER_COMM_NCCL_WORDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Whether NCCL's last error, in words, is of memory that CUDA or the system refused: it has no
// result of its own for that.
bool NcclSaysOutOfMemory(absl::string_view words);

// Whether they are of another thing of which this machine, or the container, has too little: shared
// memory, files, threads.
bool NcclSaysHostLimit(absl::string_view words);

// RESOURCE_EXHAUSTED / OUT_OF_MEMORY, HOST_LIMIT.
absl::Status NcclOutOfMemory(const std::string& text);
absl::Status NcclHostLimit(const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_WORDS_H_
