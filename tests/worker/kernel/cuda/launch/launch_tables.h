#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_TABLES_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_TABLES_H_

#include <cstdint>
#include <cstring>

#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {

// The `index`-th entry of the table that begins at byte `table` of a launch.
template <class T>
T Get(const Launch& launch, int64_t table, int64_t index) {
  T value;
  std::memcpy(&value, launch.bytes.data() + table + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_TABLES_H_
