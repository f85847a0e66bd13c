#ifndef ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/compute_pool.h"
#include "worker/kernel/cpu/gradient_loop.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/packed_keys.h"
#include "worker/kernel/cpu/tile_loop.h"
#include "worker/kernel/split_kv.h"

namespace annulus {

// The attention kernel on the CPU: CpuKernel serves every job. CpuGradients is its part for
// gradients.

// Gradients on the CPU. Weights are computed again from the LSE, tile by tile. All five products
// are fp32 for every input type, with one exception: bf16 on "amx" and "avx512bf16". These multiply
// bf16 numbers, and round weights and dS to bf16 first. The bits depend on the inputs and the task
// list, not on the number of threads.
class CpuGradients {
 public:
  // `isa` and `pool` must outlive this.
  CpuGradients(const TileIsa& isa, ComputePool* pool);

  // AttentionKernel::Accumulate for gradient tasks.
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control);

 private:
  const TileIsa& isa_;
  ComputePool* const pool_;
  std::vector<GradientScratch> scratch_;  // One per thread.
};

// Attention on the CPU. Tiles of 96 query rows meet blocks of 256 keys. Blocks are packed once,
// while there is room, and shared by all heads of a group and all tasks.
//
// Arithmetic is fp32 for every input type, with these exceptions:
// - bf16 on "amx" and "avx512bf16": products of bf16 numbers, summed in fp32; weights are rounded
//   to bf16.
// - fp16 on "amx": products of numbers in two bf16 parts (bf16_formats-inl.h).
// - fp32 with Arithmetic::kBf16x3: as fp16 on "amx"; other paths refuse the job.
//
// The bits of a row depend on its inputs and on the order of its keys in the task list, not on
// threads or on other rows. One kind of call also depends on its shape: few rows over many keys,
// not deterministic. It is split into chunks of keys (split_kv.h). It may take the unpacked path
// (row_loop.h), in fp32, or in bf16 on "avx512bf16".
//
// Accumulate takes subnormal fp32 and bf16 numbers as zero, but not fp16 ones.
class CpuKernel : public AttentionKernel {
 public:
  struct Options {
    int threads = 1;            // 1 … ComputePool::kMaxThreads; includes the caller.
    std::string path = "auto";  // "auto", "amx", "avx512bf16", "avx512", "avx2" or "portable".
    // Bytes for packed keys and values. The kernel always holds at least one block.
    int64_t pack_bytes = 64 << 20;
    const TileIsa* isa = nullptr;  // If not nullptr, replaces the table that `path` selects.
    // If not nullptr, replaces the threads of `threads`. The kernel's owner thread must own the
    // pool.
    std::shared_ptr<ComputePool> pool;
  };

  // Errors: INVALID_ARGUMENT for an unknown path or thread count; FAILED_PRECONDITION for a path
  // that the CPU lacks; RESOURCE_EXHAUSTED if the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<CpuKernel>> Create(const Options& options);

  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  bool ends_rows() const override { return true; }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override;
  std::string Description() const override;
  // True if the kernel serves Arithmetic::kBf16x3.
  bool serves_bf16x3() const { return isa_.bf16x3 != nullptr; }

  int threads() const { return pool_->threads(); }

 private:
  CpuKernel(const TileIsa& isa, int64_t pack_bytes, std::shared_ptr<ComputePool> pool);
  absl::Status Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                      const CallVisibility& visible, const KernelControl& control);
  // Runs each chunk into its own partials, then merges them in order.
  absl::Status AttendChunks(const KernelJob& job, absl::Span<const KernelTask> tasks, KvSplit cut,
                            const KernelControl& control);
  // Runs the tasks of all chunks: unpacked (row_loop.h) if the call allows it, else as any other
  // call.
  absl::Status AttendCut(const KernelJob& job, absl::Span<const KernelTask> tasks,
                         const KernelControl& control);
  // Applies `op` to the heads of `bound` and to `rows`.
  absl::Status Apply(const KernelJob& job, const KernelOp& op, const KernelTask& bound,
                     Interval rows);
  absl::StatusOr<const TileIsa*> IsaOf(const KernelJob& job) const;
  void RunPhase(const TileCall& call, const Phase& phase);

  const TileIsa& isa_;
  const int64_t pack_bytes_;
  const std::shared_ptr<ComputePool> pool_;
  PackedKeys packed_;
  std::vector<KeptKeys> kept_;        // One per thread: the keys that it packs in passing.
  std::vector<TileScratch> scratch_;  // One per thread.
  CpuGradients gradients_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_CPU_KERNEL_H_
