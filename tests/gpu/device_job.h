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

// Random normal numbers, the same few MiB again and again: as attention's time does not depend on
// them, and to draw all takes longer than the kernel.
std::vector<std::byte> RepeatedNormals(DataType dtype, int64_t elements, uint64_t seed);

// A forward job of one sequence on one device, for measurements.
class DeviceJob {
 public:
  // `device` outlives it.
  static absl::StatusOr<std::unique_ptr<DeviceJob>> Create(const AttentionSpec& spec,
                                                           Device* device);

  // Identity, accumulate and finish, with the keys in `calls` equal parts of a call each, so that
  // all but the first carry what the others left; all of that `times` times without a wait between,
  // so that the device has work while calls are planned. Seconds that the device took for each.
  absl::StatusOr<double> Run(AttentionKernel& kernel, int calls, int times);

  // Multiply-adds of visible pairs count twice, for both products.
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
