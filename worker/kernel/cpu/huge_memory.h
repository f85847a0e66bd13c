#ifndef ANNULUS_WORKER_KERNEL_CPU_HUGE_MEMORY_H_
#define ANNULUS_WORKER_KERNEL_CPU_HUGE_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Working memory of a kernel, in large pages if the system has them. One owner.
class HugeMemory {
 public:
  // Ensures at least `bytes` bytes, aligned to a large page. If they were there already, their
  // content stays; otherwise it is undefined. The system commits pages on first use.
  // RESOURCE_EXHAUSTED if there is no memory; the object is then empty. `what` names the purpose in
  // the error.
  absl::Status Reserve(int64_t bytes, absl::string_view what);

  int64_t bytes() const { return bytes_; }
  float* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_HUGE_MEMORY_H_
