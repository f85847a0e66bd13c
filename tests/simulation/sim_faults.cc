// Another part of SimCluster: faults, and the conditions when everything is idle.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/sim_cluster.h"

namespace annulus {

void SimCluster::OneFault() {
  if (healed_) return;
  auto victim = workers_.begin();
  std::advance(victim, agenda_.Below(workers_.size()));
  SimWorker& worker = *victim->second;
  const int64_t link = LinkOf(worker);
  switch (agenda_.Below(options_.coordinator_restarts ? 7 : 5)) {
    case 0:
    case 1:  // The stream breaks.
      if (link != 0) BreakLink(link, absl::UnavailableError("the stream broke"));
      return;
    case 2:  // The stream hangs, possibly longer than a lease.
      if (link != 0) links_[link].stalled_until = agenda_.now() + agenda_.Delay(absl::Seconds(5));
      return;
    case 3:  // The process dies and restarts.
      if (worker.alive()) worker.Crash();
      agenda_.After(agenda_.Delay(absl::Seconds(2)), [&worker] {
        if (!worker.alive()) worker.Start();
      });
      return;
    case 4:  // The process stops for a while, or is ordered to leave.
      if (agenda_.Chance(0.5)) return worker.Pause(agenda_.Delay(absl::Seconds(4)));
      if (worker.alive()) worker.Terminate();
      agenda_.After(agenda_.Delay(absl::Milliseconds(100)), [this, &worker] {
        const int64_t its_link = LinkOf(worker);
        if (its_link != 0 && agenda_.Chance(0.5)) {
          BreakLink(its_link, absl::UnavailableError("the stream broke while it was leaving"));
        }
      });
      agenda_.After(absl::Seconds(12), [&worker] {
        if (!worker.alive()) worker.Start();
      });
      return;
    case 5:  // The coordinator dies.
      if (coordinator_ != nullptr && agenda_.Chance(0.5)) CrashCoordinator();
      return;
    case 6:  // The coordinator is ordered to end.
      if (coordinator_ != nullptr && agenda_.Chance(0.5)) DrainCoordinator();
      return;
  }
}

// Sometimes it is ordered twice, and clients continue to send.
void SimCluster::DrainCoordinator() {
  Handle(event::Drain{});
  if (stopped_) return;
  agenda_.After(agenda_.Delay(absl::Milliseconds(500)), [this, life = life_] {
    if (life != life_ || stopped_) return;
    clients_.LookAround();
    if (agenda_.Chance(0.5)) Handle(event::Drain{});
  });
}

void SimCluster::PlanFaults() {
  const absl::Duration length = options_.length;
  for (int i = 0; i < options_.jobs; ++i) {
    agenda_.After(length * agenda_.Below(1000) / 1000, [this] { clients_.Submit(); });
  }
  for (int i = 0; i < 20; ++i) {
    agenda_.After(length * agenda_.Below(1000) / 1000, [this] { TellStale(); });
  }
  if (!options_.faults) return;
  for (int64_t i = agenda_.Below(8); i >= 0; --i) {
    agenda_.After(length * agenda_.Below(1000) / 1000, [this] { OneFault(); });
  }
}

void SimCluster::Heal() {
  healed_ = true;
  clients_.Behave();
  for (auto& [slot, worker] : workers_) {
    worker->faults = false;
    if (!worker->alive()) worker->Start();
  }
}

absl::Status SimCluster::CheckAtRest() {
  if (coordinator_ == nullptr) return absl::InternalError("no coordinator at the end");
  const CoordinatorTables& tables = coordinator_->tables();
  std::vector<std::string> wrong;
  if (clients_.open() != 0) wrong.push_back(absl::StrCat(clients_.open(), " calls never ended"));
  if (tables.jobs.active() != 0) wrong.push_back("invariant 11: a job never ended");
  if (!tables.runs.all().empty()) wrong.push_back("invariant 8: a run never ended");
  if (tables.queue.size() + tables.plannings.size() + tables.replan.size() != 0)
    wrong.push_back("a job waits");
  for (const auto& [number, worker] : tables.workers.all()) {
    const PoolBytes used = tables.ledger.used(number);
    if (used.staging != 0 || used.device != 0) {
      wrong.push_back(
          absl::StrCat("invariant 10: bytes of ", worker.slot(), " are still reserved"));
    }
  }
  for (const auto& [slot, worker] : workers_) {
    if (worker->staging_used() != 0 || worker->device_used() != 0 || !worker->holds_nothing()) {
      wrong.push_back(absl::StrCat("invariant 8: ", slot, " still holds something"));
    }
  }
  if (tables.workers.ready_count() != options_.workers) {
    wrong.push_back(absl::StrCat(tables.workers.ready_count(), " workers are ready"));
  }
  const size_t family = tables.Family().size();
  size_t ready = 0;
  for (const auto& [number, group] : tables.groups.all()) {
    ready += group.state == GroupRecord::State::kReady;
  }
  if (ready != family || tables.groups.all().size() != family) {
    wrong.push_back(absl::StrCat("invariant 6: ", ready, " groups of ", family, " are ready"));
  }
  if (!options_.faults && aborts_ != 0) wrong.push_back("invariant 8: clients made a group abort");
  return wrong.empty() ? absl::OkStatus() : absl::InternalError(absl::StrJoin(wrong, "; "));
}

absl::Status SimCluster::Run() {
  started_ = agenda_.now();
  StartCoordinator();
  for (auto& [slot, worker] : workers_) {
    agenda_.After(agenda_.Delay(absl::Milliseconds(50)), [worker = worker.get()] {
      if (!worker->alive()) worker->Start();
    });
  }
  PlanFaults();
  const absl::Time trouble = agenda_.now() + options_.length;
  while (wrong_.ok() && agenda_.RunOne(trouble)) {
  }
  if (wrong_.ok()) Heal();
  const absl::Time rest = agenda_.now() + options_.settling;
  // The same members are considered again when a leaving worker has returned.
  for (int i = 1; i <= 4; ++i) agenda_.After(options_.settling * i / 8, [this] { Heal(); });
  while (wrong_.ok() && agenda_.RunOne(rest)) {
  }
  return wrong_.ok() ? CheckAtRest() : wrong_;
}

std::map<int64_t, PoolBytes> SimCluster::UsedBytes() const {
  std::map<int64_t, PoolBytes> used;
  if (options_.planted != Planted::kKeptBytes) return used;
  const CoordinatorTables& tables = coordinator_->tables();
  for (const auto& [number, worker] : tables.workers.all())
    used[number] = tables.ledger.used(number);
  return used;
}

// Imitates a forgotten release: memory that was freed on a worker is reserved again.
void SimCluster::KeepBytes(const std::map<int64_t, PoolBytes>& before) {
  constexpr int64_t kNoRun = -1;
  auto& tables = const_cast<CoordinatorTables&>(coordinator_->tables());
  for (const auto& [number, used] : before) {
    const int64_t freed = used.staging - tables.ledger.used(number).staging;
    if (freed <= 0 || tables.workers.Find(number) == nullptr || !agenda_.Chance(0.1)) continue;
    tables.ledger.Reserve(kNoRun, {{number, {freed, 0}}});
  }
}

// Occasionally no client reads them.
void SimCluster::OutputsPublished(SimWorker& worker, const ShardId& id) {
  if (agenda_.Chance(0.02)) worker.Abandon(id);
}

}  // namespace annulus
