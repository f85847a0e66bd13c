#ifndef ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_
#define ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Whether NCCL's last error, in words, is of memory that CUDA or the system refused: it has no
// result of its own for that.
bool IsNcclOutOfMemory(absl::string_view words);

// Whether they are of another thing of which this machine, or the container, has too little: shared
// memory, files, threads.
bool IsNcclHostLimit(absl::string_view words);

// RESOURCE_EXHAUSTED / OUT_OF_MEMORY, HOST_LIMIT.
absl::Status NcclOutOfMemory(const std::string& text);
absl::Status NcclHostLimit(const std::string& text);

// Ids of groups that did not form. NCCL keeps a thread and a socket for each, which wait for the
// group's ranks for as long as the process lives. Thread-safe.
class NcclLostIds {
 public:
  // Few beside the threads and files that a process may have.
  static constexpr int64_t kMost = 256;

  void Add() { ++count_; }
  int64_t count() const { return count_; }
  // Why another process should take this one's place; empty: it need not.
  std::string Complaint() const {
    if (count_ < kMost) return "";
    return absl::StrCat("NCCL still waits for the ranks of ", count(), " groups that did not form");
  }

 private:
  std::atomic<int64_t> count_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_
