#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_MACHINE_FIXTURE_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_MACHINE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/emulated_hopper.h"
#include "tests/worker/kernel/cuda/emulator/emulated_hopper_gpu.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {

using testing::HasSubstr;
using Gpu = EmulatedHopperGpu;

inline constexpr int kThreads256 = 256;
inline constexpr uint32_t kBarrier = 60 << 10, kOther = kBarrier + 8;

// Thread 0 loads; threads 128 … 255 multiply.
inline bool Multiplies(const Gpu& gpu) { return gpu.Thread() >= 128; }

class HopperMachineTest : public testing::Test {
 protected:
  std::string Run(const std::function<void(const Gpu&)>& body, uint64_t seed = 1) {
    HopperMachine machine(kThreads256, &memory_, seed);
    return machine.Run(7, 64 << 10, [&](int thread) { body(Gpu{&machine, thread, kThreads256}); });
  }
  // Expects the same fault in every order of events.
  void ExpectFault(const std::string& fault, const std::function<void(const Gpu&)>& body) {
    for (uint64_t seed = 1; seed <= 6; ++seed)
      EXPECT_THAT(Run(body, seed), HasSubstr(fault)) << "seed " << seed;
  }

  // A tensor of bf16, (columns, heads, rows), whose numbers encode their position.
  const std::byte* Map(int columns, int heads, int rows, int box_rows) {
    tensor_.resize(static_cast<size_t>(columns) * heads * rows);
    for (size_t i = 0; i < tensor_.size(); ++i) tensor_[i] = static_cast<uint16_t>(i + 1);
    TensorMapSpec map;
    map.base = reinterpret_cast<const std::byte*>(tensor_.data());
    map.columns = columns;
    map.heads = heads;
    map.rows = rows;
    map.box_rows = box_rows;
    map.head_bytes = columns * 2;
    map.row_bytes = columns * heads * 2;
    EmulateMaps({&map, 1}, map_);
    memory_.Add(map_, sizeof(map_), false);
    memory_.Add(map.base, static_cast<int64_t>(tensor_.size() * 2), false);
    return map_;
  }

  GlobalMemory memory_;
  std::vector<uint16_t> tensor_;
  alignas(128) std::byte map_[128];
};

inline void MultiplyOnce(const Gpu& gpu, float (&sums)[32], uint64_t a) {
  gpu.MultiplyRows<Element::kBf16, 64>(a, AlongRows(8192, 8192, 0), sums, false);
}
inline void FillWithZeros(const Gpu& gpu, uint32_t bytes) {
  for (uint32_t at = (gpu.Thread() - 128) * 4; at < bytes; at += 512)
    gpu.StoreShared<uint32_t>(at, 0);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_SM90_HOPPER_MACHINE_FIXTURE_H_
