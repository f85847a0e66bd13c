#include "worker/lane/lane.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "proto/wire/convert.h"
#include "worker/device/device.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

absl::StatusOr<std::unique_ptr<Lane>> Lane::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device, options.engine.make_device());
  ASSIGN_OR_RETURN(std::unique_ptr<AttentionKernel> kernel,
                   options.engine.make_kernel(device.get()));
  return std::unique_ptr<Lane>(new Lane(std::move(options), std::move(device), std::move(kernel)));
}

Lane::Lane(Options options, std::unique_ptr<Device> device, std::unique_ptr<AttentionKernel> kernel)
    : options_(std::move(options)),
      device_(std::move(device)),
      kernel_(std::move(kernel)),
      groups_(options_.now),
      lane_(options_.max_waiting),
      side_(options_.max_waiting) {}

Lane::~Lane() {
  for (const GroupId& id : groups_.Ids()) Abort(id);
}

void Lane::Prepare(ShardWork work) {
  const ShardId id = work.id;
  {
    MutexLock lock(&known_mutex_);
    known_.insert(id);
  }
  const bool posted = side_.Post([this, work = std::move(work)] { DoPrepare(work); });
  if (!posted) options_.report(ShardFailedEvent(id, LaneFullError("shards")));
}

void Lane::Release(const ShardId& id) {
  {
    // Shards that this lane does not run need no wake-up of its threads.
    MutexLock lock(&known_mutex_);
    if (known_.erase(id) == 0) return;
  }
  // Posted through the side thread, so that it runs after a waiting Prepare.
  side_.PostAlways([this, id] { lane_.PostAlways([this, id] { runs_.erase(id); }); });
}

void Lane::Command(const WorkerCommand& command) {
  const GroupId id = GroupOf(command);
  bool posted = true;
  if (command.has_open_group()) {
    groups_.Add(id);
    posted = side_.Post([this, open = command.open_group()] { DoOpen(open); });
  } else if (command.has_connect_group()) {
    posted = lane_.Post([this, connect = command.connect_group()] { DoConnect(connect); });
  } else if (command.has_run_segment()) {
    posted = lane_.Post([this, run = command.run_segment()] { DoRun(run); });
  } else if (command.has_close_group()) {
    lane_.PostAlways([this, id] { DoClose(id); });
  } else if (command.has_abort_group()) {
    Abort(id);
    lane_.PostFront([this, id] { DoClose(id); });
  }
  if (posted) return;
  lane_.PostFront([this, id, command] {
    Break(id, LaneFullError("commands"),
          command.has_run_segment() ? &command.run_segment() : nullptr);
  });
}

class Lane::Current {
 public:
  Current(Lane* lane, const GroupId& id, ShardRun* run) : lane_(lane) { Set(id, run); }
  ~Current() { Set(GroupId(), nullptr); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  void Set(const GroupId& id, ShardRun* run) {
    MutexLock lock(&lane_->current_mutex_);
    lane_->current_group_ = id;
    lane_->current_run_ = run;
  }

  Lane* const lane_;
};

void Lane::Abort(const GroupId& id) {
  groups_.Abort(id);
  MutexLock lock(&current_mutex_);
  if (current_run_ != nullptr && current_group_ == id) current_run_->stop = true;
}

void Lane::DoPrepare(const ShardWork& work) {
  side_gauge_.Begin("Prepare", work.id, 0);
  absl::StatusOr<std::shared_ptr<ShardRun>> run =
      PrepareRun(work, options_.device_budget.get(), device_.get(), *kernel_, &memo_);
  side_gauge_.End();
  if (!run.ok()) return options_.report(ShardFailedEvent(work.id, run.status()));
  const WorkerEvent prepared = PreparedEvent(**run);
  // The coordinator sends RunSegment only after this report, so RunSegment is queued behind this.
  lane_.PostAlways([this, run = *std::move(run)] { runs_[run->id] = run; });
  options_.report(prepared);
}

void Lane::DoOpen(const control::v1::OpenGroup& open) {
  WorkerEvent event;
  *event.mutable_group_opened()->mutable_generation() = open.generation();
  auto begin = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                     options_.engine.make_communicator(device_.get(), open.rank(), open.size()));
    ASSIGN_OR_RETURN(*event.mutable_group_opened()->mutable_bootstrap(), communicator->Bootstrap());
    if (groups_.Put(IdOf(open.generation()), std::move(communicator)) == nullptr)
      return absl::OkStatus();
    return absl::AbortedError("the group was aborted meanwhile");
  };
  side_gauge_.Begin("OpenGroup", ShardId(), 0);
  const absl::Status status = begin();
  side_gauge_.End();
  if (!status.ok()) *event.mutable_group_opened()->mutable_error() = ErrorToProto(status);
  options_.report(std::move(event));
}

void Lane::DoConnect(const control::v1::ConnectGroup& connect) {
  const GroupId id = IdOf(connect.generation());
  WorkerEvent event;
  *event.mutable_group_connected()->mutable_generation() = connect.generation();
  absl::Status status = absl::NotFoundError("this worker has not opened the group");
  if (const auto stay = groups_.Enter(id); stay.has_value()) {
    const absl::Duration timeout = DurationFromProto(connect.timeout());
    // Waiting for late ranks does not count as a stall.
    gauge_.Begin("ConnectGroup", ShardId(), 0, timeout);
    const std::vector<std::string> bootstraps(connect.bootstraps().begin(),
                                              connect.bootstraps().end());
    status = stay->communicator()->Connect(bootstraps, SteadyNow() + timeout);
    gauge_.End();
  }
  if (!status.ok()) {
    groups_.Destroy(id);
    *event.mutable_group_connected()->mutable_error() = ErrorToProto(status);
  }
  options_.report(std::move(event));
}

void Lane::DoClose(const GroupId& id) {
  gauge_.Begin("CloseGroup", ShardId(), 0);
  groups_.Destroy(id);
  gauge_.End();
  groups_.Remove(id);
  WorkerEvent event;
  *event.mutable_group_closed()->mutable_generation() = GenerationOf(id);
  options_.report(std::move(event));
}

void Lane::DoRun(const control::v1::RunSegment& command) {
  const GroupId group = IdOf(command.generation());
  const auto stay = groups_.Enter(group);
  if (!stay.has_value()) {
    if (!groups_.known(group) || groups_.aborted(group))
      return;  // GroupClosed, or an earlier GroupBroken, reports it.
    return Break(group, absl::NotFoundError("this worker is not connected to the group"), &command);
  }
  const auto found = runs_.find(IdOf(command.shard()));
  if (found == runs_.end()) {
    return Break(group, absl::FailedPreconditionError("the shard is not prepared"), &command);
  }
  // The prediction may be wrong by this factor.
  const absl::Duration patience = 2 * DurationFromProto(command.longest_step());
  gauge_.Begin("RunSegment", found->first, command.segment(), patience);
  RunNext(found->second, stay->communicator(), command, patience);
  gauge_.End();
}

void Lane::RunNext(std::shared_ptr<ShardRun> run, Communicator* communicator,
                   const control::v1::RunSegment& command, absl::Duration patience) {
  const GroupId group = IdOf(command.generation());
  const Current current(this, group, run.get());
  if (groups_.aborted(group)) run->stop = true;  // The abort may have come before Current was set.
  if (run->executor == nullptr) {
    run->group = group;
    if (const absl::Status copied = MakeExecutor(run.get(), communicator); !copied.ok()) {
      Fail(run.get(), copied);
      // The input buffers have undefined content, which must not be sent to peers.
      return Break(group, copied, &command, run->next_step);
    }
  }
  const auto steps = static_cast<int32_t>(run->program->schedule.steps.size());
  if (run->group != group || command.step_begin() != run->next_step ||
      command.step_end() < run->next_step || command.step_end() > steps) {
    return Break(group, absl::FailedPreconditionError("the segment does not follow the one before"),
                 &command, run->next_step);
  }
  run->next_step = command.step_end();
  RunOn(run.get(), command, patience);
}

absl::Status Lane::MakeExecutor(ShardRun* run, Communicator* communicator) {
  Executor::Options options;
  options.program = run->program;
  options.memory = run->memory;
  options.device = device_.get();
  options.kernel = kernel_.get();
  options.communicator = communicator;
  options.control = {&run->stop, gauge_.progress()};
  options.step_timeout = options_.step_timeout;
  run->executor = std::make_unique<Executor>(std::move(options));
  return run->executor->CopyIn(run->Tensors());
}

void Lane::RunOn(ShardRun* run, const control::v1::RunSegment& command, absl::Duration patience) {
  Executor& executor = *run->executor;
  const absl::Status status = executor.Run({command.step_begin(), command.step_end()}, patience);
  if (executor.communicator_failed())
    return Break(IdOf(command.generation()), status, &command, executor.step());
  // The failed rank reports the reason.
  if (executor.peer_failed()) run->failed = true;
  if (!status.ok()) Fail(run, status);
  WorkerEvent event = ShardEvent(&WorkerEvent::mutable_segment_done, run->id);
  event.mutable_segment_done()->set_segment(command.segment());
  options_.report(std::move(event));
  if (!command.last()) return;
  if (!run->failed) Finish(run);
  // The shard may stay long, fetched late or kept. Its program is not needed.
  runs_.erase(run->id);
}

void Lane::Finish(ShardRun* run) {
  const absl::Status status = run->executor->CopyOut(run->Tensors());
  if (!status.ok()) return Fail(run, status);
  const ExecutionStats stats = run->executor->stats();
  run->ReleaseDevice();
  options_.report(OutputReadyEvent(run->id, stats, options_.engine.description));
}

void Lane::Fail(ShardRun* run, const absl::Status& why) {
  // A device fault is always reported, because it ends the process.
  if (std::exchange(run->failed, true) && !IsDeviceFault(why)) return;
  options_.report(ShardFailedEvent(run->id, why));
}

void Lane::Break(const GroupId& id, const absl::Status& why, const control::v1::RunSegment* at,
                 int32_t step) {
  const bool asked_for = groups_.aborted(id);
  groups_.Abort(id);
  // Destroyed at once: until then messages may arrive in a shard's memory.
  groups_.Destroy(id);
  if (asked_for && !IsDeviceFault(why)) return;
  WorkerEvent event;
  control::v1::GroupBroken& broken = *event.mutable_group_broken();
  *broken.mutable_generation() = GenerationOf(id);
  if (at != nullptr) {
    *broken.mutable_shard() = at->shard();
    broken.set_segment(at->segment());
    broken.set_step(step);
  }
  int32_t suspect = -1;
  const ErrorDetail detail = DetailOf(why);
  const auto peer = detail.metadata.find("peer");
  if (peer == detail.metadata.end() || !absl::SimpleAtoi(peer->second, &suspect)) suspect = -1;
  broken.set_suspect_rank(suspect);
  *broken.mutable_cause() = ErrorToProto(why);
  options_.report(std::move(event));
}

}  // namespace annulus
