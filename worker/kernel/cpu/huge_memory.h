#ifndef ANNULUS_WORKER_KERNEL_CPU_HUGE_MEMORY_H_
#define ANNULUS_WORKER_KERNEL_CPU_HUGE_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// A kernel's working memory, in large pages where the system has them. One owner.
class HugeMemory {
 public:
  // Has at least so many bytes then, aligned to a large page. They are kept if they were there, and
  // else of any content; the system takes them when they are used. RESOURCE_EXHAUSTED when there
  // are none, and then there is nothing; `what` is what they are for.
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
