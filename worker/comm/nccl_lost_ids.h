#ifndef ANNULUS_WORKER_COMM_NCCL_LOST_IDS_H_
#define ANNULUS_WORKER_COMM_NCCL_LOST_IDS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {

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

#endif  // ANNULUS_WORKER_COMM_NCCL_LOST_IDS_H_
