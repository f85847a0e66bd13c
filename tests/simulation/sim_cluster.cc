#include "tests/simulation/sim_cluster.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "proto/wire/convert.h"
#include "server/coordinator/state/errors.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

constexpr size_t kMostActions = 20000;  // The most actions of one event.

CoordinatorOptions OptionsFor(const SimOptions& options) {
  CoordinatorOptions coordinator;
  coordinator.lease = absl::Seconds(3);
  coordinator.max_timeout = absl::Seconds(40);
  coordinator.upload_grace = absl::Seconds(4);
  coordinator.answer_timeout = absl::Seconds(6);
  coordinator.formation_timeout = absl::Seconds(5);
  coordinator.regroup_wait = absl::Seconds(6);
  coordinator.max_queued_jobs = options.max_queued_jobs;
  coordinator.solo_jobs_per_worker = options.solo_jobs_per_worker;
  coordinator.inline_plan_sequences = 3;
  coordinator.inline_plan_time = absl::Seconds(1);
  coordinator.drain_grace = absl::Seconds(5);
  return coordinator;
}

// Map entries are in a fixed order.
std::string Text(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return text;
}

std::string TextOf(const action::Answer& answer) {
  if (!answer.value.ok()) return answer.value.status().ToString();
  return std::visit([](const auto& message) { return Text(message); }, *answer.value);
}

}  // namespace

SimCluster::SimCluster(SimOptions options)
    : options_(options),
      agenda_(options.seed),
      coordinator_options_(OptionsFor(options)),
      clients_(coordinator_options_, options.workers, &agenda_, this) {
  for (int i = 0; i < options.workers; ++i) {
    const std::string slot = absl::StrCat("w", i);
    // Room for a few jobs of up to 60 rows (1,680 bytes).
    const SimWorker::Limits limits{2000 + agenda_.Below(4000), 300 + agenda_.Below(400)};
    workers_[slot] =
        std::make_unique<SimWorker>(slot, limits, &agenda_, static_cast<SimSurroundings*>(this));
    workers_[slot]->faults = options.faults;
    workers_[slot]->frees_late = options.planted == Planted::kEarlyRelease;
  }
}

// ---- The coordinator.

void SimCluster::StartCoordinator() {
  ++life_;
  stopped_ = false;
  invariants_ = std::make_unique<Invariants>();
  coordinator_ = std::make_unique<CoordinatorState>(
      coordinator_options_, [this] { return agenda_.Bits(); },
      [this](const PlanRequest& request) { return MakePlan(request); }, agenda_.now());
}

void SimCluster::CrashCoordinator() {
  coordinator_.reset();
  ++life_;
  tick_at_ = absl::InfiniteFuture();
  clients_.LoseCalls();
  for (auto& [number, link] : links_) {
    if (link.open) BreakLink(number, absl::UnavailableError("the coordinator is gone"));
  }
  agenda_.After(agenda_.Delay(absl::Milliseconds(800)), [this] { StartCoordinator(); });
}

PlanResult SimCluster::MakePlan(const PlanRequest& request) const {
  if (request.sizes.empty()) return InsufficientWorkersError(1, 0);
  auto plan = std::make_shared<JobPlan>();
  const Submission& job = *request.submission;
  plan->execution = request.execution;
  // AUTO chooses by the request's size, so that all sizes occur.
  if (plan->execution.world_size == 0) {
    plan->execution.world_size = request.sizes[job.spec.q_rows() % request.sizes.size()];
  }
  plan->execution.strategy = Strategy::kRingPassKv;
  plan->execution.layout = Layout::kZigzag;
  plan->cost.seconds = plan->cost.expected_seconds = 0.2;
  plan->cost.peak_bytes_per_rank = SimWorker::DeviceBytes(job.spec.q_rows());
  plan->cost.bytes_sent.assign(plan->execution.world_size, 0);
  plan->segments = 1 + static_cast<int32_t>(job.spec.q_rows() % 5);
  ASSIGN_OR_RETURN(plan->shards, MakeShardPlan(job.spec, PlanOptionsOf(plan->execution, 1)));
  plan->bytes = BytesOfShards(job.spec, plan->shards);
  return std::shared_ptr<const JobPlan>(std::move(plan));
}

bool SimCluster::Tell(Event event) {
  if (coordinator_ == nullptr || stopped_) {
    // A dead coordinator does not answer.
    if (const auto* run = std::get_if<event::RunJob>(&event)) {
      clients_.OnFinish(run->call, absl::UnavailableError("no coordinator"));
    } else if (const auto* watch = std::get_if<event::WatchJob>(&event)) {
      clients_.OnFinish(watch->call, absl::UnavailableError("no coordinator"));
    }
    return false;
  }
  Handle(std::move(event));
  return true;
}

void SimCluster::Handle(Event event) {
  if (coordinator_ == nullptr || !wrong_.ok()) return;
  ++events_;
  coverage_.Note(coordinator_->tables(), event);
  Mix(absl::StrCat(absl::FormatTime(absl::RFC3339_full, agenda_.now(), absl::UTCTimeZone()), " ",
                   event.index()));
  const std::map<int64_t, PoolBytes> used = UsedBytes();
  const int64_t failed = FailingRun(coordinator_->tables(), event);
  std::vector<Action> actions = coordinator_->Handle(std::move(event), agenda_.now());
  if (options_.planted == Planted::kKeptBytes) KeepBytes(used);
  if (options_.fingerprint) Mix(Snapshot(coordinator_->tables()));
  CheckAll();
  const RunRecord* after = RunNumbered(coordinator_->tables(), failed);
  if (after != nullptr && after->live()) Violation("a shard has failed, and its run goes on");
  if (actions.size() > kMostActions) Violation("an event made too much work");
  for (Action& action : actions) Perform(std::move(action));
  ScheduleTick();
}

void SimCluster::CheckAll() {
  Expect(invariants_->Check(coordinator_->tables()));
  Expect(lane_order_.Issue(coordinator_->tables()));
}

void SimCluster::Mix(const std::string& text) {
  if (options_.fingerprint) fingerprint_ = fingerprint_ * 31 + std::hash<std::string>()(text);
}

void SimCluster::ScheduleTick() {
  if (coordinator_ == nullptr) return;
  const absl::Time wake = std::max(coordinator_->NextWakeup(), agenda_.now());
  if (wake >= tick_at_ || wake == absl::InfiniteFuture()) return;
  tick_at_ = wake;
  agenda_.At(wake, [this, life = life_, wake] {
    if (life != life_ || tick_at_ != wake) return;
    tick_at_ = absl::InfiniteFuture();
    Handle(event::Tick{});
  });
}

void SimCluster::Perform(Action action) {
  Mix(absl::StrCat("does ", action.index()));
  if (auto* send = std::get_if<action::SendCommand>(&action)) {
    Mix(absl::StrCat(send->connection, Text(Whole(send->command))));
    PerformCommand(*send);
  } else if (auto* close = std::get_if<action::CloseConnection>(&action)) {
    auto it = links_.find(close->connection);
    if (it == links_.end() || !it->second.open) return;
    // Earlier messages arrive earlier.
    SendDown(close->connection,
             [status = close->status](SimWorker& worker) { worker.LinkIsClosed(status); });
    it->second.open = false;
  } else if (auto* event = std::get_if<action::SendEvent>(&action)) {
    Mix(absl::StrCat(event->call, Text(event->event)));
    clients_.OnEvent(event->call, event->event);
    if (options_.planted == Planted::kTwoEnds &&
        event->event.state_changed().state() >= v1::Job::STATE_SUCCEEDED) {
      clients_.OnEvent(event->call, event->event);
    }
  } else if (auto* finish = std::get_if<action::FinishCall>(&action)) {
    Mix(absl::StrCat(finish->call, finish->status.ToString()));
    clients_.OnFinish(finish->call, finish->status);
  } else if (auto* answer = std::get_if<action::Answer>(&action)) {
    Mix(absl::StrCat(answer->call, TextOf(*answer)));
    clients_.OnAnswer(answer->call);
  } else if (auto* plan = std::get_if<action::MakePlan>(&action)) {
    agenda_.After(agenda_.Delay(absl::Milliseconds(100)),
                  [this, life = life_, number = plan->plan, request = std::move(plan->request)] {
                    if (life == life_) Handle(event::Planned{number, MakePlan(request)});
                  });
  } else if (std::get_if<action::Stopped>(&action) != nullptr) {
    stopped_ = true;
    agenda_.After(absl::Milliseconds(1), [this, life = life_] {
      if (life == life_) CrashCoordinator();
    });
  }
}

void SimCluster::PerformCommand(const action::SendCommand& send) {
  auto it = links_.find(send.connection);
  if (it == links_.end() || !it->second.open) return;
  const WorkerCommand command = Whole(send.command);
  // At the start, groups change with the workers that are still registering.
  if (command.has_abort_group() && agenda_.now() > started_ + absl::Seconds(3)) ++aborts_;
  if (options_.planted == Planted::kLostDrop && command.has_drop() && agenda_.Chance(0.2)) {
    WorkerCommand nothing = command;
    nothing.clear_drop();
    SendDown(send.connection, [nothing](SimWorker& worker) { worker.Receive(nothing); });
    return;
  }
  if (options_.planted == Planted::kSwappedLanes && command.has_run_segment() &&
      command.run_segment().shard().rank() == 0) {
    auto held = swapped_.find(send.connection);
    if (held == swapped_.end()) {
      swapped_[send.connection] = command;
      return;
    }
    WorkerCommand first = command, second = held->second;
    std::swap(*first.mutable_run_segment(), *second.mutable_run_segment());
    swapped_.erase(held);
    SendDown(send.connection, [second](SimWorker& worker) { worker.Receive(second); });
    SendDown(send.connection, [first](SimWorker& worker) { worker.Receive(first); });
    return;
  }
  SendDown(send.connection, [command](SimWorker& worker) { worker.Receive(command); });
}

void SimCluster::LaneBegins(SimWorker& worker, const WorkerCommand& command) {
  Expect(lane_order_.Begin(worker.slot(), command));
}

void SimCluster::Expect(const absl::Status& holds) {
  if (!holds.ok()) Violation(std::string(holds.message()));
}

void SimCluster::Violation(const std::string& what) {
  if (wrong_.ok()) {
    wrong_ = absl::InternalError(absl::StrCat(
        what, " (at ", absl::FormatDuration(agenda_.now() - absl::FromUnixSeconds(1000000)),
        ", event ", events_, ")"));
  }
}

void SimCluster::Upload(const std::string& endpoint, const ShardId& id) {
  workers_[endpoint]->Upload(id);
}
void SimCluster::Abandon(const std::string& endpoint, const ShardId& id) {
  workers_[endpoint]->Abandon(id);
}
void SimCluster::Fetch(const std::string& endpoint, const ShardId& id) {
  workers_[endpoint]->Fetch(id);
}

}  // namespace annulus
