#include "tests/simulation/sim_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/schedule/schedule.h"
#include "attention/validate/capability.h"
#include "proto/wire/convert.h"
#include "proto/wire/rates.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

constexpr int kSteps = 4;

}  // namespace

SimWorker::SimWorker(std::string slot, Limits limits, Agenda* agenda, SimSurroundings* around)
    : slot_(std::move(slot)), limits_(limits), agenda_(agenda), around_(around) {}

void SimWorker::Start() {
  ++life_;
  AgentState::Options options;
  control::v1::Register self;
  self.set_slot(slot_);
  self.set_data_endpoint(slot_);
  self.set_backend("sim");
  self.set_staging_limit_bytes(limits_.staging);
  self.set_device_limit_bytes(limits_.device);
  WorkerRates rates;
  serves_bf16x3_ = agenda_->Chance(0.7);
  if (serves_bf16x3_) {
    rates.kernels.push_back({DataType::kFp32, Arithmetic::kBf16x3, {{128, 1e-9, 0}}});
  } else {
    control::v1::Lack* lack = self.add_lacks();
    lack->set_feature(kBf16x3Feature);
    lack->set_why_not("It needs a CPU with AMX.");
  }
  *self.mutable_rates() = RatesToProto(rates);
  self.set_schedule_version(kScheduleVersion);
  self.set_protocol_version(control::v1::PROTOCOL_VERSION_CURRENT);
  options.self = [self] { return self; };
  options.link.random = [this] { return static_cast<double>(agenda_->Below(1000)) / 1000; };
  options.link.welcome_timeout = absl::Seconds(3);
  options.link.last_retry = absl::Seconds(1);
  options.new_identity = [this] {
    return Identity{absl::StrFormat("i%016x", agenda_->Bits()), std::string(32, 'k')};
  };
  options.drain_timeout = absl::Seconds(10);
  agent_ = std::make_unique<AgentState>(std::move(options));
  for (AgentAction& action : agent_->Start(agenda_->now())) Perform(std::move(action));
  ScheduleTick();
}

void SimWorker::Crash() {
  ++life_;
  around_->CloseLink(*this);
  around_->Leave(*this);
  agent_.reset();
  shards_.clear();
  lane_.clear();
  connected_.clear();
  lane_busy_ = false;
  operation_.clear();
  tick_at_ = absl::InfiniteFuture();
}

void SimWorker::Terminate() { Handle(Terminated{}); }

void SimWorker::Pause(absl::Duration how_long) {
  paused_until_ = std::max(paused_until_, agenda_->now() + how_long);
}

void SimWorker::Later(absl::Duration delay, std::function<void()> what) {
  agenda_->After(delay, [this, life = life_, what = std::move(what)] {
    if (life != life_) return;
    if (agenda_->now() < paused_until_) {
      Later(paused_until_ - agenda_->now(), what);
    } else {
      what();
    }
  });
}

void SimWorker::Handle(AgentEvent event) {
  if (agent_ == nullptr) return;
  for (AgentAction& action : agent_->Handle(event, agenda_->now())) {
    if (agent_ == nullptr) return;
    Perform(std::move(action));
  }
  ScheduleTick();
}

void SimWorker::ScheduleTick() {
  if (agent_ == nullptr) return;
  const absl::Time wake = agent_->NextWake();
  // Its timer would fire without a pause.
  if (wake <= agenda_->now()) around_->Violation(absl::StrCat(slot_, " never sleeps"));
  if (wake == absl::InfiniteFuture() || (tick_at_ <= wake && tick_at_ > agenda_->now())) return;
  tick_at_ = wake;
  Later(tick_at_ - agenda_->now(), [this] {
    tick_at_ = absl::InfiniteFuture();
    Handle(Ticked{});
  });
}

void SimWorker::Receive(WorkerCommand command) {
  Later(absl::ZeroDuration(), [this, stream = stream_, command = std::move(command)] {
    term_ = std::max(term_, command.term());
    Handle(CommandArrived{stream, command});
  });
}

void SimWorker::LinkIsClosed(absl::Status status) {
  Later(absl::ZeroDuration(), [this, stream = stream_, status] {
    Handle(LinkClosed{stream, status});
  });
}

void SimWorker::Report(WorkerEvent fact, absl::Duration typical) {
  Later(agenda_->Delay(typical), [this, fact = std::move(fact)] { Tell(fact); });
}

void SimWorker::Tell(const WorkerEvent& fact) {
  Handle(Reported{fact});
  if (fact.has_shard_complete()) RunSolo(IdOf(fact.shard_complete().shard()));
  if (fact.has_output_ready()) Publish(IdOf(fact.output_ready().shard()));
}

void SimWorker::Perform(AgentAction action) {
  if (auto* connect = std::get_if<annulus::Connect>(&action)) {
    stream_ = connect->stream;
    around_->OpenLink(*this);
  } else if (std::get_if<Disconnect>(&action) != nullptr) {
    around_->CloseLink(*this);
  } else if (auto* send = std::get_if<Send>(&action)) {
    around_->SendEvent(*this, std::move(send->event));
  } else if (auto* open = std::get_if<OpenShard>(&action)) {
    Open(open->reserve);
  } else if (auto* prepare = std::get_if<PrepareShard>(&action)) {
    Later(agenda_->Delay(absl::Milliseconds(5)), [this, id = prepare->id] { Prepare(id); });
  } else if (auto* close = std::get_if<CloseShard>(&action)) {
    Close(close->id);
  } else if (auto* group = std::get_if<CommandGroup>(&action)) {
    Command(group->command);
  } else if (std::get_if<Exit>(&action) != nullptr) {
    agenda_->After(absl::ZeroDuration(), [this, life = life_] {
      if (life == life_) Crash();
    });
  }
}

void SimWorker::Open(const control::v1::Reserve& reserve) {
  const ShardId id = IdOf(reserve.shard());
  // Nothing is reserved then, and nothing will be freed.
  if (faults && agenda_->Chance(0.005)) {
    return Report(FailedShard(id, "INVALID_PLAN"), absl::Milliseconds(1));
  }
  Held held;
  held.reserve = reserve;
  held.staging = reserve.staging_bytes();
  auto spec = SpecFromProto(reserve.spec(), "spec");
  auto execution = ExecutionFromProto(reserve.execution(), "execution");
  auto plan = MakeShardPlan(*spec, PlanOptionsOf(*execution, reserve.granule()));
  const ShardBytes bytes = BytesOfShards(*spec, *plan)[id.rank];
  held.output = bytes.output;
  held.device_needed = DeviceBytes(spec->q_rows());
  held.term = term_;
  held.lender = IdOf(reserve.lender());
  if (spec->uses_state()) CheckLender(held.lender, id.rank);
  if (spec->arithmetic == Arithmetic::kBf16x3 && !serves_bf16x3_) {
    around_->Violation(absl::StrCat(slot_, " does not serve what it is given"));
  }
  shards_[id] = std::move(held);
  if (staging_used() > limits_.staging) {
    around_->Violation(absl::StrCat("staging of ", slot_, " is over its limit"));
  }
  if (bytes.total() != reserve.staging_bytes())
    around_->Violation("staging_bytes are not the shard's");
  if (bytes.input != 0) return;
  WorkerEvent fact;
  *fact.mutable_shard_complete()->mutable_shard() = reserve.shard();
  Report(std::move(fact), absl::Milliseconds(1));
}

void SimWorker::CheckLender(const ShardId& lender, int32_t rank) {
  const auto found = shards_.find(lender);
  if (found == shards_.end() || found->second.closing || !found->second.published ||
      !found->second.reserve.keep() || lender.rank != rank) {
    around_->Violation(absl::StrCat("no kept shard on ", slot_, " lends what a job borrows"));
  }
}

bool SimWorker::Lends(const ShardId& id) const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [&](const auto& entry) { return entry.second.lender == id; });
}

void SimWorker::Upload(const ShardId& id) {
  Later(absl::ZeroDuration(), [this, id] {
    if (shards_.count(id) == 0) return;
    WorkerEvent fact;
    *fact.mutable_shard_complete()->mutable_shard() = KeyOf(id);
    Tell(fact);
  });
}

void SimWorker::Abandon(const ShardId& id) {
  Later(absl::ZeroDuration(), [this, id] {
    if (shards_.count(id) == 0) return;
    WorkerEvent fact;
    *fact.mutable_shard_abandoned()->mutable_shard() = KeyOf(id);
    *fact.mutable_shard_abandoned()->mutable_error() = SimFailure("UPLOAD_STALLED");
    Tell(fact);
  });
}

void SimWorker::Fetch(const ShardId& id) {
  Later(absl::ZeroDuration(), [this, id] {
    auto it = shards_.find(id);
    if (it == shards_.end() || !it->second.published) return;
    WorkerEvent fact;
    *fact.mutable_output_drained()->mutable_shard() = KeyOf(id);
    Tell(fact);
  });
}

bool SimWorker::TakeDevice(const ShardId& id) {
  Held& held = shards_[id];
  held.device = held.device_needed;
  if (device_used() <= limits_.device) return true;
  around_->Violation(absl::StrCat("device memory of ", slot_, " is over its limit"));
  return false;
}

void SimWorker::Prepare(const ShardId& id) {
  auto it = shards_.find(id);
  if (it == shards_.end() || it->second.closing) return;
  WorkerEvent fact;
  if (faults && agenda_->Chance(0.02)) {
    return Report(FailedShard(id, "NO_MEMORY"), absl::Milliseconds(1));
  }
  TakeDevice(id);
  control::v1::Prepared& prepared = *fact.mutable_prepared();
  *prepared.mutable_shard() = KeyOf(id);
  prepared.set_steps(kSteps);
  const int32_t ranks = it->second.reserve.execution().world_size();
  for (int32_t peer = 0; peer < ranks; ++peer) {
    if (peer == id.rank) continue;
    control::v1::PeerDigest* digest = prepared.add_digests();
    digest->set_peer(peer);
    digest->set_sends(1000 * id.rank + peer);
    digest->set_receives(1000 * peer + id.rank);
  }
  Report(std::move(fact), absl::Milliseconds(5));
}

void SimWorker::RunSolo(const ShardId& id) {
  const auto shard = shards_.find(id);
  if (shard == shards_.end() || shard->second.closing || !shard->second.reserve.solo()) return;
  if (std::exchange(shard->second.ran, true)) return;
  TakeDevice(id);
  Later(agenda_->Delay(absl::Milliseconds(200)), [this, id] {
    auto it = shards_.find(id);
    if (it == shards_.end() || it->second.closing) return;
    it->second.device = 0;
    WorkerEvent fact;
    if (faults && agenda_->Chance(0.02)) {
      return Report(FailedShard(id, "BAD_TILE"), absl::Milliseconds(2));
    }
    *fact.mutable_output_ready()->mutable_shard() = KeyOf(id);
    Report(std::move(fact), absl::Milliseconds(2));
  });
}

void SimWorker::Publish(const ShardId& id) {
  const auto shard = shards_.find(id);
  if (shard == shards_.end() || shard->second.closing) return;
  shard->second.published = true;
  around_->OutputsPublished(*this, id);
}

void SimWorker::Close(const ShardId& id) {
  auto it = shards_.find(id);
  if (it == shards_.end()) {
    return Later(absl::ZeroDuration(), [this, id] { Handle(ShardFreed{id}); });
  }
  it->second.closing = true;
  for (const auto& [other, held] : shards_) {
    if (!(held.lender == id) || held.closing) continue;
    // A worker that releases everything does so in any order, and so does a coordinator that finds
    // shards of an earlier one.
    if (!agent_->fenced() && !agent_->exited() && held.term == term_) {
      around_->Violation(absl::StrCat("a shard on ", slot_, " is dropped while it lends"));
    }
  }
  if (frees_late) {
    Later(absl::ZeroDuration(), [this, id] { Handle(ShardFreed{id}); });
    return Later(absl::Seconds(1), [this, id] { shards_.erase(id); });
  }
  Later(agenda_->Delay(absl::Milliseconds(10)), [this, id] { Free(id); });
}

bool SimWorker::InLane(const ShardId& id) const {
  for (const WorkerCommand& command : lane_) {
    if (command.has_run_segment() && IdOf(command.run_segment().shard()) == id) return true;
  }
  return false;
}

void SimWorker::Free(const ShardId& id) {
  if (shards_.count(id) == 0) return;
  // The lane still uses the shard, or what it lends. Its memory is freed afterwards.
  if (InLane(id) || Lends(id)) return Later(absl::Milliseconds(20), [this, id] { Free(id); });
  shards_.erase(id);
  Handle(ShardFreed{id});
}

int64_t SimWorker::staging_used() const {
  int64_t sum = 0;
  for (const auto& [id, held] : shards_) sum += held.staging;
  return sum;
}

int64_t SimWorker::device_used() const {
  int64_t sum = 0;
  for (const auto& [id, held] : shards_) sum += held.device;
  return sum;
}

}  // namespace annulus
