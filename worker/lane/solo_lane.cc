#include "worker/lane/solo_lane.h"

#include <utility>

#include "attention/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<SoloLane>> SoloLane::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, options.engine.make_device());
  ASSIGN_OR_RETURN(std::unique_ptr<AttentionKernel> kernel, options.engine.make_kernel());
  return std::unique_ptr<SoloLane>(
      new SoloLane(std::move(options), std::move(device), std::move(kernel)));
}

SoloLane::SoloLane(Options options, std::unique_ptr<Device> device,
                   std::unique_ptr<AttentionKernel> kernel)
    : options_(std::move(options)),
      device_(std::move(device)),
      kernel_(std::move(kernel)),
      queue_(options_.max_waiting) {}

SoloLane::~SoloLane() {
  MutexLock lock(&mutex_);
  for (auto& [id, stop] : stops_) *stop = true;
}

void SoloLane::Run(ShardWork work) {
  const ShardId id = work.id;
  auto stop = std::make_shared<std::atomic<bool>>(false);
  {
    MutexLock lock(&mutex_);
    stops_[id] = stop;
  }
  if (queue_.Post([this, work = std::move(work), stop] { DoRun(work, stop); })) return;
  {
    MutexLock lock(&mutex_);
    stops_.erase(id);
  }
  options_.report(
      ShardFailedEvent(id, absl::ResourceExhaustedError("too many jobs wait for this worker")));
}

void SoloLane::Release(const ShardId& id) {
  MutexLock lock(&mutex_);
  const auto stop = stops_.find(id);
  if (stop != stops_.end()) *stop->second = true;
}

void SoloLane::DoRun(const ShardWork& work, const StopFlag& stop) {
  if (!*stop) {
    gauge_.Begin("Solo", work.id, 0);
    const absl::StatusOr<ExecutionStats> stats = Execute(work, stop.get());
    gauge_.End();
    // A stopped run was dropped: nobody waits for its end.
    if (stats.ok()) {
      options_.report(OutputReadyEvent(work.id, *stats));
    } else if (!*stop) {
      options_.report(ShardFailedEvent(work.id, stats.status()));
    }
  }
  MutexLock lock(&mutex_);
  const auto entry = stops_.find(work.id);
  if (entry != stops_.end() && entry->second == stop) stops_.erase(entry);
}

absl::StatusOr<ExecutionStats> SoloLane::Execute(const ShardWork& work,
                                                 const std::atomic<bool>* stop) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ShardRun> run,
                   PrepareRun(work, options_.device_budget.get(), device_.get()));
  Executor::Options options;
  options.program = run->program;
  options.memory = run->memory;
  options.device = device_.get();
  options.kernel = kernel_.get();
  options.control = {stop, gauge_.progress()};
  Executor executor(std::move(options));
  RETURN_IF_ERROR(executor.CopyIn(run->Tensors()));
  const auto steps = static_cast<int32_t>(run->program->schedule.steps.size());
  RETURN_IF_ERROR(executor.Run({0, steps}, /*transfers_only=*/false));
  RETURN_IF_ERROR(executor.CopyOut(run->Tensors()));
  return executor.stats();
}

}  // namespace annulus
