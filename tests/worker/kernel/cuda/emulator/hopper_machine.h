#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_MACHINE_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_MACHINE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/emulated_block.h"
#include "tests/worker/kernel/cuda/emulator/fiber.h"
#include "tests/worker/kernel/cuda/emulator/hopper_parts.h"
#include "tests/worker/kernel/cuda/emulator/hopper_shared.h"
#include "tests/worker/kernel/cuda/emulator/memory_checks.h"

namespace annulus::cuda {

// EmulatedBlock for sm_90a: the threads of a block and its asynchronous parts, which run at random
// times: copies of boxes and products of groups of four warps. An error that a device would not
// report is a fault, even if it had no effect here: vector clocks check the order.
class HopperMachine {
 public:
  // `seed` determines the times of events.
  HopperMachine(int threads, GlobalMemory* global, uint64_t seed);

  // Like EmulatedBlock::Run.
  std::string Run(int64_t number, uint32_t shared_bytes, std::function<void(int)> body);
  // Run in steps, interleaved with other blocks. Step returns true if there is another step.
  // Afterwards fault() is the result of Run.
  void Start(int64_t number, uint32_t shared_bytes, std::function<void(int)> body);
  bool Step();
  const std::string& fault() const { return fault_; }

  // Called by threads.
  void Read(int thread, const void* at, int64_t size, size_t alignment);
  void Write(int thread, const void* at, int64_t size, size_t alignment);
  // Adds one to a counter that other blocks increment too.
  int32_t CountUp(int thread, const void* at);
  // Copies of a thread. They are done when it has waited for all.
  void CopyChunkLater(int thread, uint32_t to, const void* from, bool there);
  void WaitCopies(int thread);
  std::byte* ReadShared(int thread, uint32_t at, uint32_t size);
  std::byte* WriteShared(int thread, uint32_t at, uint32_t size);
  void FenceAsync(int thread) { shared_->Fence(Me(thread)); }
  // Waits for all `count` threads from `first` on. Returns the logical or of their values. `name`
  // distinguishes barriers.
  bool Meet(int thread, int name, int first, int count, bool value);
  // For groups 1 and 2. From the first turn on, only the group that has the turn may issue
  // products.
  void AwaitTurn(int thread, int group);
  void PassTurn(int thread, int group);
  void Together(int thread, EmulatedBlock::WarpAct act, int detail, void* mine);
  // The value, which must be equal in the thread's whole warp.
  int Uniform(int thread, int value);
  void MakeBarrier(int thread, uint32_t at, int arrivals);
  void FenceBarriers(int thread);
  void Arrive(int thread, uint32_t at, uint32_t expected_bytes);
  void AwaitBarrier(int thread, uint32_t at, uint32_t parity);

  void AcquireMap(int thread, const void* map);
  void LoadBox(int thread, uint32_t to, const void* map, int32_t column, int32_t head, int32_t row,
               uint32_t barrier);

  // A product of a group. `left`: registers of 16 depths, or nullptr: from the first descriptor.
  // Until it is waited for, its sums have content that CheckKnown detects and arithmetic changes.
  void HoldForProducts(int thread, const void* registers, size_t bytes);
  void FenceProducts(int thread);
  void Multiply(int thread, const GroupProduct& product, const uint32_t* left, float* sums);
  void CommitProducts(int thread);
  // Waits for all products that were committed together, except for the newest `but`.
  void AwaitProducts(int thread, size_t but);
  // Checks used registers: a fault if they are sums that were not waited for, or derived from such.
  void CheckKnown(int thread, const void* registers, size_t bytes);

 private:
  struct Thread {
    Fiber fiber;
    bool running = false, waiting = false, polling = false;
    bool fenced = false, turn = false;
    // True if others of its warp may have continued before it.
    bool strayed = false;
    size_t issued = 0;  // Products of its group.
    Clock clock;
    std::vector<HeldRegisters> held;  // At the last fence.
    ThreadProducts open;              // Not committed.
    std::deque<ThreadProducts> committed;
    std::vector<std::pair<uint32_t, const void*>> chunks;  // 16 bytes each, or zeros.
  };
  struct Warp {
    int come = 0;
    EmulatedBlock::WarpAct act = nullptr;
    int detail = 0;
    void* lanes[kWarp] = {};
  };
  struct Meeting {
    int come = 0;
    std::vector<bool> here;  // Indexed by thread.
    std::vector<int> waiting;
    bool any = false, result = false;
    Clock clock;
  };

  void Fail(int thread, const std::string& fault);
  void FailIf(int thread, const std::string& fault) {
    if (!fault.empty()) Fail(thread, fault);
  }
  void Pause(int thread, bool polling);
  void WakePollers();
  // True if the thread is the last to arrive at a barrier. Others wait, if they wait at all.
  bool Come(int thread, int name, int first, int count);
  void EndMeeting(Meeting& meeting);
  Actor Me(int thread) const { return {thread, &threads_[thread]->clock}; }
  void StartThreads();
  std::string AtTheEnd() const;
  HopperMbarrier& Find(int thread, uint32_t at);
  void EndPhase(HopperMbarrier& barrier);
  // Executes one pending operation, drawn at random. False if there is none.
  bool Proceed();
  std::string Land(const BoxCopy& copy);
  std::string Execute(int group);
  std::string ReadOperands(int group, const IssuedProduct& issued, std::vector<float>* left,
                           std::vector<float>* right);
  std::shared_ptr<SumsInFlight> FlightOf(int thread, float* sums, int count);
  void Settle(int thread, const ThreadProducts& products);

  GlobalMemory* const global_;
  std::mt19937_64 random_;
  uint64_t lazy_ = 1;  // A pending operation is executed once in this many turns.
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::unique_ptr<HopperShared> shared_;
  std::map<uint32_t, HopperMbarrier> barriers_;
  std::map<int, Meeting> meetings_;
  bool turns_ = false;
  std::set<std::pair<int, const void*>> acquired_;
  std::unordered_map<uintptr_t, std::pair<int, uint32_t>> written_;  // Words of global memory.
  std::deque<BoxCopy> copies_;
  std::vector<GroupProducts> groups_;
  std::vector<size_t> order_;  // Order of warps.
  std::function<void(int)> body_;
  int64_t number_ = 0;
  std::string fault_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_MACHINE_H_
