#ifndef ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_LAUNCHER_H_
#define ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/kernel/cuda/emulator/memory_checks.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/launch_cost.h"
#include "worker/kernel/cuda/launch/launcher.h"

namespace annulus::cuda {

// Runs the kernels' own source on the CPU, synchronously. A fault is INTERNAL.
class EmulatedLauncher : public Launcher {
 public:
  // `memory` has the ranges that launches may access, except uploads and partials. `hopper`: a
  // device of sm_90a, whose asynchronous parts are late as `seed` determines.
  EmulatedLauncher(GlobalMemory* memory, int64_t max_tables, bool hopper, uint64_t seed);

  std::byte* partials() const override { return partials_.get(); }
  int64_t partial_bytes() const override { return kPartialBytes; }

  int64_t max_tables() const override { return max_tables_; }
  absl::StatusOr<const std::byte*> Upload(absl::Span<const std::byte> tables) override;
  bool has_hopper() const override { return hopper_; }
  bool has_hopper_gradients() const override { return hopper_; }
  absl::Status EncodeMaps(absl::Span<const TensorMapSpec> maps, std::byte* to) override;
  absl::Status Forward(const ForwardKind& kind, const ForwardArgs& args, int64_t blocks) override;
  absl::Status Gradients(const GradientKind& kind, const GradientArgs& args,
                         int64_t blocks) override;
  absl::Status Op(const OpArgs& args, int64_t blocks) override;
  std::string Description() const override { return "emulated"; }

 private:
  static constexpr int64_t kPartialBytes = 16 << 10;

  GlobalMemory* const memory_;
  const int64_t max_tables_;
  const bool hopper_;
  uint64_t seed_;
  std::vector<std::byte> uploaded_;
  const std::unique_ptr<std::byte[]> partials_;
};

// Runs `kernel`, and declares to `memory` which blocks each call may access. `done` completes a
// call's queued work.
std::unique_ptr<AttentionKernel> WithMemory(std::shared_ptr<GlobalMemory> memory,
                                            std::unique_ptr<AttentionKernel> kernel,
                                            std::function<absl::Status()> done);

// The CUDA kernel on host memory. `max_tables` is small in most tests, so that calls become several
// launches; a small `max_work` makes more.
std::unique_ptr<AttentionKernel> MakeEmulatedKernel(int64_t max_tables,
                                                    double max_work = kMaxLaunchWork);
std::unique_ptr<AttentionKernel> MakeEmulatedHopperKernel(int64_t max_tables, uint64_t seed);

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_WORKER_KERNEL_CUDA_EMULATOR_EMULATED_LAUNCHER_H_
