#include "worker/executor/executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

// Every other value of a verdict byte means failure.
constexpr std::byte kHasResult{0x5a};
constexpr std::byte kFailed{0};

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
  // The caller frees the memory that queued work uses.
  (void)options_.device->Synchronize();
}

void Executor::Prepare(const Segment& segment) {
  if (!computed_.ok() || !options_.kernel->prepares()) return;
  std::vector<KernelTask> tasks;
  for (int32_t k = segment.step_begin; k < segment.step_end; ++k) {
    for (std::vector<KernelTask>& call : CallsOf(binder_.Bind(k).tasks)) {
      tasks.insert(tasks.end(), call.begin(), call.end());
    }
  }
  Note(options_.kernel->Prepare(job_, tasks, options_.control));
}

absl::Status Executor::RunSteps(const Segment& segment) {
  for (int32_t k = segment.step_begin; k < segment.step_end; ++k) {
    step_.store(k, std::memory_order_relaxed);
    BoundStep step = binder_.Bind(k);
    Apply(step.births);
    for (const SendMessage& send : step.sends) stats_.bytes_sent += send.bytes;
    RETURN_IF_ERROR(StartTransfers(step));
    Accumulate(std::move(step.tasks));
    RETURN_IF_ERROR(JoinTransfers());
    Apply(step.ops);
  }
  return absl::OkStatus();
}

absl::Status Executor::Run(const Segment& segment, absl::Duration patience) {
  RETURN_IF_ERROR(copied_);
  const int32_t steps = static_cast<int32_t>(options_.program->schedule.steps.size());
  if (segment.step_begin != next_step_ || segment.step_end < next_step_ ||
      segment.step_end > steps) {
    return absl::FailedPreconditionError(absl::StrCat("steps ", segment.step_begin, " to ",
                                                      segment.step_end, " of ", steps,
                                                      " cannot run: the next one is ", next_step_));
  }
  next_step_ = segment.step_end;
  patience_ = patience;
  const absl::Time began = SteadyNow();
  Prepare(segment);
  absl::Status moved = RunSteps(segment);
  // After a communicator failure, the rank does not wait for its device.
  if (moved.ok()) Note(options_.device->Synchronize());
  if (moved.ok() && next_step_ == steps && options_.program->verdict_bytes > 0) {
    moved = ShareVerdicts();
  }
  stats_.running += SteadyNow() - began;
  communicator_failed_ = !moved.ok();
  // A communicator error may be a consequence of a device fault.
  return moved.ok() || IsDeviceFault(computed_) ? computed_ : moved;
}

void Executor::Note(const absl::Status& computed) {
  // A device fault replaces an earlier failure, since the process cannot use the device again.
  if (computed_.ok() || IsDeviceFault(computed)) computed_ = computed;
}

absl::Status Executor::ShareVerdicts() {
  const int32_t own = options_.program->rank;
  std::vector<std::byte> verdicts(options_.program->plan.world_size, kFailed);
  verdicts[own] = computed_.ok() ? kHasResult : kFailed;
  RETURN_IF_ERROR(SwapVerdicts(verdicts.data()));
  const auto failed = std::find_if(verdicts.begin(), verdicts.end(),
                                   [](std::byte verdict) { return verdict != kHasResult; });
  if (failed == verdicts.end() || !computed_.ok()) return absl::OkStatus();
  computed_ = absl::AbortedError(
      absl::StrCat("rank ", failed - verdicts.begin(), " failed, and its peers with it"));
  peer_failed_ = true;
  return absl::OkStatus();
}

absl::Status Executor::SwapVerdicts(std::byte* verdicts) {
  const int32_t own = options_.program->rank, ranks = options_.program->plan.world_size;
  std::byte* const shared = options_.memory.get() + options_.program->placement.arena_bytes;
  Device& device = *options_.device;
  RETURN_IF_ERROR(device.CopyIn({shared, ranks, verdicts, ranks, ranks, 1}));
  RETURN_IF_ERROR(device.Synchronize());
  BoundStep step;
  for (int32_t peer = 0; peer < ranks; ++peer) {
    if (peer == own) continue;
    step.sends.push_back({peer, shared + own, 1});
    step.receives.push_back({peer, shared + peer, 1});
  }
  RETURN_IF_ERROR(StartTransfers(step));
  RETURN_IF_ERROR(JoinTransfers());
  RETURN_IF_ERROR(device.CopyOut({verdicts, ranks, shared, ranks, ranks, 1}));
  return device.Synchronize();
}

absl::Status Executor::StartTransfers(const BoundStep& step) {
  if (options_.communicator == nullptr) {
    if (step.sends.empty() && step.receives.empty()) return absl::OkStatus();
    return absl::InternalError("the schedule has transfers, but there is no communicator");
  }
  return options_.communicator->Start(step.sends, step.receives);
}

absl::Status Executor::JoinTransfers() {
  if (options_.communicator == nullptr) return absl::OkStatus();
  const absl::Time began = SteadyNow();
  options_.device->MarkKernels();
  const absl::Status status =
      options_.communicator->Join(began + options_.step_timeout + patience_);
  const absl::Time waited_from = std::max(began, options_.device->KernelsDone());
  const absl::Time ended = SteadyNow();
  if (waited_from < ended) stats_.exposed_communication += ended - waited_from;
  return status;
}

std::vector<std::vector<KernelTask>> Executor::CallsOf(std::vector<KernelTask> tasks) const {
  return SplitCalls(*job_.spec, *job_.mask, std::move(tasks), options_.max_call_intervals);
}

void Executor::Accumulate(std::vector<KernelTask> tasks) {
  if (tasks.empty()) return;
  for (const std::vector<KernelTask>& call : CallsOf(std::move(tasks))) {
    if (!computed_.ok()) return;
    Note(options_.kernel->Accumulate(job_, call, options_.control));
  }
}

void Executor::Apply(const std::vector<KernelOp>& ops) {
  for (const KernelOp& op : ops) {
    if (!computed_.ok()) return;
    if (options_.control.stopped()) return Note(absl::CancelledError("stopped between operations"));
    Note(options_.kernel->Apply(job_, op));
    options_.control.Count(1);
  }
}

absl::Status Executor::CopyIn(const StagedTensors& staged) {
  copied_ = CopyFrom(staged);
  return copied_;
}

absl::Status Executor::CopyFrom(const StagedTensors& staged) {
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
