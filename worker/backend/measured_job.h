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

// What all jobs of a measurement share: a kernel may take longer to make than to measure.
struct Machine {
  static absl::StatusOr<Machine> Create(const Engine& engine);

  std::unique_ptr<Device> device;
  std::unique_ptr<AttentionKernel> kernel;
};

// Memory of random numbers in every type, of which caches hold a part at most: each piece that is
// taken is the one that was not touched for the longest time. One thread.
class ColdNumbers {
 public:
  static constexpr int64_t kBytes = int64_t{64} << 20;
  // RESOURCE_EXHAUSTED where the machine has no memory.
  static absl::StatusOr<ColdNumbers> Create();
  // `bytes`: kBytes at most.
  std::byte* Take(int64_t bytes);

 private:
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.get()); }

  HugeMemory memory_;
  int64_t at_ = 0;
};

// The shape of a job of one sequence that is measured.
struct MeasuredShape {
  int32_t heads = 1;  // Of queries and of keys.
  int32_t head_dim = 0;
  int64_t q_len = 0, kv_len = 0;
  int64_t window = 0;  // Keys that a row sees, itself the last; 0: all.
};

// A job of one rank, to be run again and again, as lanes run them.
class MeasuredJob {
 public:
  // Of the kernel, type and operation of `of`. `machine` and `cold` must outlive it; with `cold`
  // keys and values come from there.
  static absl::StatusOr<MeasuredJob> Create(const Machine& machine, const KernelRates& of,
                                            const MeasuredShape& shape,
                                            ColdNumbers* cold = nullptr);

  struct Took {
    double seconds = 0, cpu_seconds = 0;
  };
  absl::StatusOr<Took> Run();

 private:
  // A tensor in memory of its own, or of so many cold bytes.
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
