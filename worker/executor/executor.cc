#include "worker/executor/executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/status_macros.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

KernelJob JobOf(const RankProgram& program) {
  KernelJob job;
  job.spec = &program.spec;
  job.mask = &program.mask;
  job.layout = &program.layout;
  job.scale = program.spec.scale_or_default();
  return job;
}

}  // namespace

Executor::Executor(Options options)
    : options_(std::move(options)),
      job_(JobOf(*options_.program)),
      binder_(options_.program.get(), options_.memory.get()) {}

Executor::~Executor() {
  // The memory of what is queued goes after this.
  (void)options_.device->Synchronize();
}

absl::Status Executor::RunSteps(const Segment& segment) {
  for (int32_t k = segment.step_begin; k < segment.step_end; ++k) {
    step_.store(k, std::memory_order_relaxed);
    const BoundStep step = binder_.Bind(k);
    Apply(step.births);
    RETURN_IF_ERROR(StartTransfers(step));
    Accumulate(step.tasks);
    RETURN_IF_ERROR(JoinTransfers());
    Apply(step.ops);
  }
  return absl::OkStatus();
}

absl::Status Executor::Run(const Segment& segment, bool transfers_only) {
  const int32_t steps = static_cast<int32_t>(options_.program->schedule.steps.size());
  if (segment.step_begin != next_step_ || segment.step_end < next_step_ ||
      segment.step_end > steps) {
    return absl::FailedPreconditionError(absl::StrCat("steps ", segment.step_begin, " to ",
                                                      segment.step_end, " of ", steps,
                                                      " cannot run: the next one is ", next_step_));
  }
  if (transfers_only) computed_.Update(absl::CancelledError("the tasks were left out"));
  next_step_ = segment.step_end;
  const absl::Time began = SteadyNow();
  const absl::Status moved = RunSteps(segment);
  // A rank that has lost its peers is not held up.
  if (moved.ok()) computed_.Update(options_.device->Synchronize());
  stats_.running += SteadyNow() - began;
  communicator_failed_ = !moved.ok();
  RETURN_IF_ERROR(moved);
  return transfers_only ? absl::OkStatus() : computed_;
}

absl::Status Executor::StartTransfers(const BoundStep& step) {
  for (const SendMessage& send : step.sends) stats_.bytes_sent += send.bytes;
  if (options_.communicator == nullptr) {
    if (step.sends.empty() && step.receives.empty()) return absl::OkStatus();
    return absl::InternalError("the schedule has transfers, and there is no communicator");
  }
  return options_.communicator->Start(step.sends, step.receives);
}

absl::Status Executor::JoinTransfers() {
  if (options_.communicator == nullptr) return absl::OkStatus();
  const absl::Time began = SteadyNow();
  options_.device->MarkKernels();
  const absl::Status status = options_.communicator->Join(began + options_.step_timeout);
  const absl::Time waited_from = std::max(began, options_.device->KernelsDone());
  const absl::Time ended = SteadyNow();
  if (waited_from < ended) stats_.exposed_communication += ended - waited_from;
  return status;
}

void Executor::Accumulate(const std::vector<KernelTask>& tasks) {
  if (!computed_.ok() || tasks.empty()) return;
  computed_ = options_.kernel->Accumulate(job_, tasks, options_.control);
  stats_.tasks += static_cast<int64_t>(tasks.size());
}

void Executor::Apply(const std::vector<KernelOp>& ops) {
  for (const KernelOp& op : ops) {
    if (computed_.ok()) computed_ = options_.kernel->Apply(job_, op);
  }
}

absl::Status Executor::CopyIn(const StagedTensors& staged) {
  ASSIGN_OR_RETURN(std::vector<SectionPlaces> places, PlacesInStaging(*options_.program, staged));
  binder_.SetPlaces(std::move(places));
  return CopyInputs(*options_.program, staged, options_.memory.get(), *options_.device,
                    options_.control);
}

absl::Status Executor::CopyOut(const StagedTensors& staged) {
  RETURN_IF_ERROR(computed_);
  if (next_step_ != static_cast<int32_t>(options_.program->schedule.steps.size())) {
    return absl::FailedPreconditionError("the last segment has not run");
  }
  RETURN_IF_ERROR(CopyOutputs(*options_.program, staged, options_.memory.get(), *options_.device,
                              options_.control));
  return options_.device->Synchronize();
}

}  // namespace annulus
