#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace annulus::cuda {

// A function with its own stack, which alternates with the code that resumes it; a switch takes a
// few nanoseconds. For x86-64. One thread runs all fibers.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` runs at the next Resume, from its beginning. An earlier body's stack is dropped without
  // unwinding, so nothing on it may own anything.
  void Start(std::function<void()> body);
  // Runs the body until it calls Pause or returns. True if it has not returned.
  bool Resume();
  // Pauses the running fiber.
  void Pause();

 private:
  static void Enter();

  std::unique_ptr<std::byte[]> stack_;
  std::function<void()> body_;
  void* inside_ = nullptr;   // Its stack pointer while it does not run …
  void* outside_ = nullptr;  // … and its resumer's while it runs.
  bool running_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_FIBER_H_
