#ifndef ANNULUS_WORKER_BACKEND_MEASURED_JOB_H_
#define ANNULUS_WORKER_BACKEND_MEASURED_JOB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/planning/kernel_rates.h"
#include "worker/executor/program.h"
#include "worker/executor/staging_copies.h"
#include "worker/kernel/cpu/huge_memory.h"
#include "worker/lane/engine.h"

namespace annulus {

// Device and kernel shared by all jobs of a measurement, since making a kernel may take longer than
// measuring it.
struct Machine {
  static absl::StatusOr<Machine> Create(const Engine& engine);

  std::unique_ptr<Device> device;
  std::unique_ptr<AttentionKernel> kernel;
};

// Memory of random numbers, valid in every type, and larger than the caches. Each piece taken is
// the one that has not been used for the longest time. Not thread-safe.
class ColdNumbers {
 public:
  static constexpr int64_t kBytes = int64_t{64} << 20;
  // RESOURCE_EXHAUSTED: the machine has no memory.
  static absl::StatusOr<ColdNumbers> Create();
  // Requires: `bytes` <= kBytes.
  std::byte* Take(int64_t bytes);

 private:
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.get()); }

  HugeMemory memory_;
  int64_t at_ = 0;
};

// The shape of a measured job, with one sequence.
struct MeasuredShape {
  int32_t heads = 1;  // Query heads and key/value heads.
  int32_t head_dim = 0;
  int64_t q_len = 0, kv_len = 0;
  int64_t window = 0;  // The number of keys that a row sees, itself the last. 0: all keys.
};

// A one-rank job that runs repeatedly, as lanes run it.
class MeasuredJob {
 public:
  // A job with the type and operation of `of`. `machine` and `cold` must outlive it. If `cold` is
  // set, keys and values come from it.
  static absl::StatusOr<MeasuredJob> Create(const Machine& machine, const KernelRates& of,
                                            const MeasuredShape& shape,
                                            ColdNumbers* cold = nullptr);

  struct Took {
    double seconds = 0, cpu_seconds = 0;
  };
  absl::StatusOr<Took> Run();

 private:
  // A tensor with its own memory, or with `cold_bytes` of ColdNumbers.
  struct Tensor {
    std::vector<std::byte> own;
    int64_t cold_bytes = 0;
  };
  absl::Status Fill(std::byte* memory, int64_t bytes) const;
  StagedTensors Staged();

  std::shared_ptr<const RankProgram> program_;
  Device* device_ = nullptr;
  AttentionKernel* kernel_ = nullptr;
  ColdNumbers* cold_ = nullptr;
  std::vector<std::byte> numbers_;
  std::vector<Tensor> tensors_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_MEASURED_JOB_H_
