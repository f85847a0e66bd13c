#ifndef ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_
#define ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus {

// True if NCCL's error text reports memory that CUDA or the system refused. NCCL has no result code
// for it.
bool IsNcclOutOfMemory(absl::string_view words);

// True if the text reports another exhausted resource of the machine or container: shared memory,
// files, threads.
bool IsNcclHostLimit(absl::string_view words);

// RESOURCE_EXHAUSTED / OUT_OF_MEMORY and RESOURCE_EXHAUSTED / HOST_LIMIT.
absl::Status NcclOutOfMemory(const std::string& text);
absl::Status NcclHostLimit(const std::string& text);

// Counts the ids of groups that did not form. For each, NCCL keeps a thread and a socket until the
// process ends. Thread-safe.
class NcclLostIds {
 public:
  // Small compared with the threads and files that a process may have.
  static constexpr int64_t kMost = 256;

  void Add() { ++count_; }
  int64_t count() const { return count_; }
  // The reason to restart the process, or empty if there is none.
  std::string Complaint() const {
    if (count_ < kMost) return "";
    return absl::StrCat("NCCL still waits for the ranks of ", count(), " groups that did not form");
  }

 private:
  std::atomic<int64_t> count_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_NCCL_ERROR_TEXT_H_
