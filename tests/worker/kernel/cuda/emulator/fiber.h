#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace annulus::cuda {

// A function with a stack of its own, which runs in turns with whoever resumes it: a few
// nanoseconds a turn. For x86-64. One thread runs all of them.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` runs at the next Resume, from its beginning. What an earlier one has on the stack is
  // forgotten, not unwound: nothing on it may own anything.
  void Start(std::function<void()> body);
  // Runs the body until it calls Pause or returns; whether it goes on.
  bool Resume();
  // Of the fiber that runs.
  void Pause();

 private:
  static void Enter();

  std::unique_ptr<std::byte[]> stack_;
  std::function<void()> body_;
  void* inside_ = nullptr;   // Its stack pointer while it does not run …
  void* outside_ = nullptr;  // … and its resumer's while it does.
  bool running_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_
