#ifndef ANNULUS_TESTS_GPU_DEVICE_JOB_H_
#define ANNULUS_TESTS_GPU_DEVICE_JOB_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "worker/device/device.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Random normal numbers that repeat every few MiB. The time of attention does not depend on them,
// and drawing all would take longer than the kernel.
std::vector<std::byte> RepeatedNormals(DataType dtype, int64_t elements, uint64_t seed);

// A forward job of one sequence on one device, for measurements.
class DeviceJob {
 public:
  // `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<DeviceJob>> Create(const AttentionSpec& spec,
                                                           Device* device);

  // Runs identity, accumulate and finish `times` times, without waiting in between, so that the
  // device has work while calls are planned. The keys are split into `calls` equal parts of one
  // call each; all but the first continue the state. Returns the device's seconds per repetition.
  absl::StatusOr<double> Run(AttentionKernel& kernel, int calls, int times);

  // Counts two operations per multiply-add of visible pairs, in both products.
  double flops() const;

 private:
  DeviceJob(const AttentionSpec& spec, Device* device);
  absl::StatusOr<BlockView> Make(BlockKind kind, int64_t rows, int32_t heads, uint64_t seed);

  const AttentionSpec spec_;
  Device* const device_;
  const MaskMap mask_;
  const BlockLayout layout_;
  const RowMap q_rows_, k_rows_;
  KernelJob job_;
  KernelTask task_;
  BlockView out_;
  std::vector<DeviceMemory> memory_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_GPU_DEVICE_JOB_H_
