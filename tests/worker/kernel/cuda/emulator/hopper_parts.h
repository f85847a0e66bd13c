#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PARTS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/hopper_shared.h"
#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/tensor_map.h"

namespace annulus::cuda {

// Parts of a HopperMachine besides its threads.

struct HopperMbarrier {
  int index = 0, arrivals = 0, pending = 0, maker = 0;
  int64_t bytes = 0;
  uint32_t phase = 0, made = 0;  // `made`: the time of its maker's fence; 0: not yet.
  uint32_t landed = 0;
  Clock clock;
  std::map<int, std::pair<uint32_t, int64_t>> waiters;  // Last parity; awaited phases.
};
struct BoxCopy {
  uint32_t to = 0, barrier = 0;
  TensorMapSpec map;
  int32_t column = 0, head = 0, row = 0;
};
// Address and earlier content of registers.
struct HeldRegisters {
  const std::byte* at;
  std::vector<std::byte> bytes;
};
struct SumsInFlight {  // Sums that products change.
  float* sums;
  std::vector<float> now;
};
// A thread's share of its group's products: those that it commits together.
struct ThreadProducts {
  size_t issued = 0;  // Products of its group up to these.
  std::vector<std::shared_ptr<SumsInFlight>> flights;
  std::vector<std::pair<const uint32_t*, std::vector<uint32_t>>> lefts;
  std::vector<std::shared_ptr<ProductReads>> reads;
};
// A product of four warps, the same for all of their threads.
struct GroupProduct {
  Element element;
  int columns;
  uint64_t a, b;
  bool add;

  bool operator==(const GroupProduct& other) const;
};
struct IssuedProduct {
  GroupProduct product;
  bool left = false;
  int come = 0;
  Clock clock;
  // Sums, and registers of the left side.
  std::vector<std::pair<std::shared_ptr<SumsInFlight>, const uint32_t*>> of_thread;
  std::shared_ptr<ProductReads> reads;
};
struct GroupProducts {
  std::vector<IssuedProduct> products;
  size_t done = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_HOPPER_PARTS_H_
