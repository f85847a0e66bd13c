#ifndef ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cpu/cpu_gradients.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/packed_keys.h"
#include "worker/kernel/cpu/tile_loop.h"
#include "worker/kernel/split_kv.h"

namespace annulus {

// Attention on the CPU: tiles of 96 query rows against blocks of 256 keys that are packed to fp32
// once, while there is room, and shared by all heads of a group and all tasks. Arithmetic is fp32
// for every input type, but for bf16 on "amx" and "avx512bf16", whose products are of bf16 numbers,
// weights rounded to bf16 among them, summed in fp32, and for fp16 on "amx", of numbers in two
// parts of bf16 (bf16_formats-inl.h); and so of fp32 numbers for jobs that ask for it, which other
// paths refuse. The bits of a row depend on its inputs and on the order of its keys in the task
// list, not on threads or on other rows; but a call of few rows over many keys is cut by its shape
// (split_kv.h), unless it is deterministic, and may be attended to without packing (row_loop.h):
// in fp32, but for bf16 on "avx512bf16". Subnormal fp32 and bf16 numbers count as zero in
// Accumulate (fp16 ones do not).
class CpuKernel : public AttentionKernel {
 public:
  struct Options {
    int threads = 1;            // 1 … ComputePool::kMaxThreads, the caller's included.
    std::string path = "auto";  // "auto", "amx", "avx512bf16", "avx512", "avx2" or "portable".
    int64_t pack_bytes =
        64 << 20;  // Memory for packed keys and values; at least one block is always held.
    const TileIsa* isa = nullptr;  // Not nullptr: this table, whatever `path` says.
    // Not nullptr: these threads, whatever `threads` says. Their owner is the kernel's.
    std::shared_ptr<ComputePool> pool;
  };

  // INVALID_ARGUMENT for an unknown path or thread count, FAILED_PRECONDITION for a path that the
  // CPU lacks, RESOURCE_EXHAUSTED where the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<CpuKernel>> Create(const Options& options);

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  bool ends_rows() const override { return true; }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override;
  std::string Description() const override;
  // Whether Arithmetic::kBf16x3 is served.
  bool serves_bf16x3() const { return isa_.bf16x3 != nullptr; }

  int threads() const { return pool_->threads(); }

 private:
  CpuKernel(const TileIsa& isa, int64_t pack_bytes, std::shared_ptr<ComputePool> pool);
  absl::Status Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                      const CallVisibility& visible, const KernelControl& control);
  // Each chunk into partials of its own, which are then merged in order.
  absl::Status AttendChunks(const KernelJob& job, absl::Span<const KernelTask> tasks, KvSplit cut,
                            const KernelControl& control);
  // The tasks of all chunks: with keys as they lie (row_loop.h), or as others.
  absl::Status AttendCut(const KernelJob& job, absl::Span<const KernelTask> tasks,
                         const KernelControl& control);
  // Of the task's heads and these rows.
  absl::Status Apply(const KernelJob& job, const KernelOp& op, const KernelTask& bound,
                     Interval rows);
  absl::StatusOr<const TileIsa*> IsaOf(const KernelJob& job) const;
  void RunPhase(const TileCall& call, const Phase& phase);

  const TileIsa& isa_;
  const int64_t pack_bytes_;
  const std::shared_ptr<ComputePool> pool_;
  PackedKeys packed_;
  std::vector<KeptKeys> kept_;        // One a thread: keys that it packs in passing.
  std::vector<TileScratch> scratch_;  // One a thread.
  CpuGradients gradients_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_
