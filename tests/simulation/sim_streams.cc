// Another part of SimCluster: the streams between the coordinator and its workers, and the
// collective operations of ranks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_cluster.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

constexpr size_t kRemembered = 200;  // The number of remembered events of workers.

}  // namespace

// ---- Streams.

int64_t SimCluster::LinkOf(const SimWorker& worker) const {
  for (const auto& [number, link] : links_) {
    if (link.worker == &worker && link.open) return number;
  }
  return 0;
}

void SimCluster::SendDown(int64_t number, std::function<void(SimWorker&)> what) {
  Link& link = links_[number];
  link.last_down = std::max(
      {link.last_down, link.stalled_until, agenda_.now() + agenda_.Delay(absl::Milliseconds(3))});
  SimWorker* worker = link.worker;
  agenda_.At(link.last_down, [this, number, worker, what = std::move(what)] {
    // A stream that the worker has abandoned delivers nothing.
    auto it = links_.find(number);
    if (it != links_.end() && worker->alive()) what(*worker);
  });
}

void SimCluster::OpenLink(SimWorker& worker) {
  CloseLink(worker);
  const int64_t number = ++last_link_;
  Link& link = links_[number];
  link.worker = &worker;
  link.last_up = link.last_down = agenda_.now();
  if (coordinator_ == nullptr || stopped_) {
    BreakLink(number, absl::UnavailableError("nobody listens"));
  }
}

// Closed by the worker: the coordinator is notified after a delay. Messages on a stream that the
// coordinator has closed are lost.
void SimCluster::CloseLink(SimWorker& worker) {
  const int64_t number = LinkOf(worker);
  const Link link = number == 0 ? Link() : links_[number];
  for (auto it = links_.begin(); it != links_.end();) {
    it = it->second.worker == &worker ? links_.erase(it) : std::next(it);
  }
  if (number == 0) return;
  const absl::Time when = std::max(
      {link.last_up, link.stalled_until, agenda_.now() + agenda_.Delay(absl::Milliseconds(3))});
  agenda_.At(when, [this, number, life = life_] {
    if (life == life_ && !stopped_) Handle(event::WorkerGone{number});
  });
}

// Broken by the network: both sides are notified.
void SimCluster::BreakLink(int64_t number, absl::Status status) {
  Link& link = links_[number];
  SimWorker* worker = link.worker;
  link.open = false;
  agenda_.After(agenda_.Delay(absl::Milliseconds(50)), [this, number, worker, status] {
    if (links_.erase(number) != 0) worker->LinkIsClosed(status);
  });
  agenda_.After(agenda_.Delay(absl::Milliseconds(50)), [this, number, life = life_] {
    if (life == life_ && !stopped_) Handle(event::WorkerGone{number});
  });
}

void SimCluster::SendEvent(SimWorker& worker, WorkerEvent event) {
  const int64_t number = LinkOf(worker);
  if (number == 0) return;
  Link& link = links_[number];
  link.last_up = std::max(
      {link.last_up, link.stalled_until, agenda_.now() + agenda_.Delay(absl::Milliseconds(3))});
  agenda_.At(link.last_up, [this, number, life = life_, event = std::move(event)] {
    auto it = links_.find(number);
    if (life != life_ || it == links_.end() || !it->second.open || stopped_) return;
    event::WorkerReported said{number, event};
    if (said_.size() < kRemembered || agenda_.Chance(0.2)) {
      if (said_.size() >= kRemembered) said_.erase(said_.begin());
      said_.push_back(said);
    }
    Handle(std::move(said));
  });
}

// Sends old messages, on their old streams, with their old terms. They must have no effect.
void SimCluster::TellStale() {
  if (coordinator_ == nullptr || stopped_ || said_.empty()) return;
  event::WorkerReported said = said_[agenda_.Below(said_.size())];
  if (said.event.has_register_()) return;
  const CoordinatorTables& tables = coordinator_->tables();
  // Timers may be due, so they run before the comparison.
  Handle(event::Tick{});
  const std::string before = Snapshot(tables);
  const bool of_term = said.event.term() == tables.term;
  const bool current = of_term && links_.count(said.connection) != 0;
  const auto& workers = tables.workers.all();
  // Any message on its stream in the current term makes a suspect worker live again, also on a
  // stream whose end the coordinator has not seen.
  const bool awaited = std::any_of(workers.begin(), workers.end(), [&](const auto& entry) {
    return entry.second.suspect && entry.second.connection == said.connection;
  });
  if (options_.planted == Planted::kGhost) {
    for (const auto& [number, worker] : tables.workers.all()) {
      if (worker.connection == 0) continue;
      said.connection = worker.connection;
      said.event.set_term(tables.term);
      said.event.set_id(worker.events_received + 1);
    }
  } else if ((current && agenda_.Chance(0.5)) || (of_term && awaited)) {
    said.event.set_term(said.event.term() - 1);
  }
  Handle(std::move(said));
  if (coordinator_ != nullptr && Snapshot(tables) != before) {
    Violation("invariant 7: an old message changed something");
  }
}

// ---- Meetings of ranks.

void SimCluster::Arrive(const std::string& operation, size_t ranks, SimWorker& worker) {
  Meeting& meeting = meetings_[operation];
  meeting.ranks = ranks;
  meeting.arrived[worker.slot()] = &worker;
  // A rank waits for its peers for a limited time. A broken link has the same effect.
  const bool breaks = worker.faults && agenda_.Chance(0.01);
  const absl::Duration patience = breaks ? absl::Milliseconds(30) : absl::Seconds(8);
  agenda_.After(patience, [this, operation, &worker] {
    auto it = meetings_.find(operation);
    if (it == meetings_.end() || it->second.arrived.erase(worker.slot()) == 0) return;
    worker.OperationFailed(operation);
  });
  if (meeting.arrived.size() < meeting.ranks || breaks) return;
  agenda_.After(agenda_.Delay(absl::Milliseconds(40)), [this, operation] {
    auto it = meetings_.find(operation);
    if (it == meetings_.end() || it->second.arrived.size() < it->second.ranks) return;
    const std::map<std::string, SimWorker*> arrived = std::move(it->second.arrived);
    meetings_.erase(it);
    for (const auto& [slot, rank] : arrived) rank->OperationDone(operation);
  });
}

void SimCluster::Leave(SimWorker& worker) {
  for (auto& [operation, meeting] : meetings_) meeting.arrived.erase(worker.slot());
}

}  // namespace annulus
