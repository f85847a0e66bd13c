#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_BLOCK_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_BLOCK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/fiber.h"
#include "tests/worker/kernel/cuda/emulator/memory_checks.h"

namespace annulus::cuda {

inline constexpr int kWarp = 32;

// The threads of one block on a fictitious device: fibers, each of which runs until it waits for
// others. Errors that a device would not report are faults here, which end the block: memory access
// out of range, misaligned or before the first write; races; warps that do not execute collective
// operations together; barriers that not all threads reach.
class EmulatedBlock {
 public:
  EmulatedBlock(int threads, GlobalMemory* global);

  // Runs body(thread) for all threads. Returns the first fault, or "". `number`: of the block.
  std::string Run(int64_t number, uint32_t shared_bytes, const std::function<void(int)>& body);

  // Called by threads.
  void Read(int thread, const void* at, int64_t size, size_t alignment);
  void Write(int thread, const void* at, int64_t size, size_t alignment);
  std::byte* ReadShared(int thread, uint32_t at, uint32_t size) {
    if (!shared_->Read(at, size, now_[thread])) Fail(thread, shared_->fault());
    return shared_->data() + at;
  }
  std::byte* WriteShared(int thread, uint32_t at, uint32_t size);
  void CopyLater(int thread, uint32_t to, const void* from, bool there);
  void Commit(int thread);
  void Wait(int thread, size_t pending);
  // The logical or of all threads' values.
  bool Barrier(int thread, bool value);
  // A collective operation of the 32 threads of a warp: the last thread to arrive calls `act` with
  // the arguments of all. `detail` must be the same for all.
  using WarpAct = void (*)(void* const (&lanes)[kWarp]);
  void Together(int thread, WarpAct act, int detail, void* mine);
  void WarpBarrier(int thread);

 private:
  struct Copy {
    uint32_t to;
    const void* from;
    bool there;
  };
  struct Thread {
    Fiber fiber;
    bool running = false, waiting = false;
    std::vector<std::vector<Copy>> groups;  // Committed, the oldest first …
    std::vector<Copy> open;                 // … and not yet committed.
  };
  struct Warp {
    int come = 0;
    WarpAct act = nullptr;
    int detail = 0;
    void* lanes[kWarp] = {};
  };
  // Ends the block; does not return to the thread.
  void Fail(int thread, const std::string& fault);
  void FailIf(int thread, const std::string& fault) {
    if (!fault.empty()) Fail(thread, fault);
  }
  void WaitForOthers(int thread);

  GlobalMemory* const global_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::vector<Moment> now_;  // One for each thread.
  std::unique_ptr<SharedMemory> shared_;
  int64_t number_ = 0;
  int at_barrier_ = 0;
  bool or_ = false, or_result_ = false;
  std::string fault_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_BLOCK_H_
