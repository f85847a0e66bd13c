#include "worker/kernel/cpu/cpu_gradients.h"

#include "base/status_macros.h"
#include "worker/kernel/cpu/flush_denormals.h"
#include "worker/kernel/cpu/gradient_plan.h"

namespace annulus {
namespace {

const TileIsa& GradientIsaFor(const TileIsa& isa, DataType dtype) {
  const TileIsa& table = IsaFor(isa, dtype);
  return table.gradients == nullptr ? *isa.fp32 : table;
}

}  // namespace

CpuGradients::CpuGradients(const TileIsa& isa, ComputePool* pool)
    : isa_(isa), pool_(pool), scratch_(pool->threads()) {}

absl::Status CpuGradients::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                      const KernelControl& control) {
  const CallVisibility visible(*job.mask, tasks, *pool_);
  GradientCall call;
  call.job = &job;
  call.isa = &GradientIsaFor(isa_, job.layout->dtype());
  call.tasks = tasks;
  call.visible = &visible;
  call.control = control;
  for (GradientScratch& scratch : scratch_)
    RETURN_IF_ERROR(scratch.Reserve(*call.isa, *job.layout));
  const GradientRounds rounds = RoundsOf(job, tasks, pool_->threads());
  call.stripe_slots = rounds.stripe_slots;
  ForEachRound(tasks, visible, rounds, control, [&](absl::Span<const GradientItem> items) {
    pool_->ParallelFor(static_cast<int64_t>(items.size()), [&](int64_t index, int thread) {
      const FlushDenormals flush;
      GradientLoop(call, scratch_[thread]).Run(items[index]);
    });
    return !control.stopped();
  });
  return control.stopped() ? absl::CancelledError("the kernel was told to stop") : absl::OkStatus();
}

}  // namespace annulus
