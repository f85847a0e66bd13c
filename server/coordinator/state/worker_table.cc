#include "server/coordinator/state/worker_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace annulus {

const Command& CommandLog::Append(Command command) {
  command.message.set_id(++last_id_);
  bytes_ += command.ByteSizeLong();
  commands_.push_back(std::move(command));
  return commands_.back();
}

void CommandLog::Acknowledge(int64_t id) {
  if (id > last_id_) return;
  while (!commands_.empty() && commands_.front().message.id() <= id) {
    bytes_ -= commands_.front().ByteSizeLong();
    commands_.pop_front();
  }
}

WorkerRecord& WorkerTable::Add(CommandLog::Limits limits) {
  const int64_t number = ++last_number_;
  WorkerRecord& worker = workers_.emplace(number, WorkerRecord(limits)).first->second;
  worker.number = number;
  return worker;
}

void WorkerTable::Erase(int64_t number) { workers_.erase(number); }

WorkerRecord* WorkerTable::Find(int64_t number) {
  auto it = workers_.find(number);
  return it == workers_.end() ? nullptr : &it->second;
}

const WorkerRecord* WorkerTable::Find(int64_t number) const {
  auto it = workers_.find(number);
  return it == workers_.end() ? nullptr : &it->second;
}

const WorkerRecord* WorkerTable::BySlot(absl::string_view slot) const {
  for (const auto& [number, worker] : workers_) {
    if (worker.slot() == slot) return &worker;
  }
  return nullptr;
}

WorkerRecord* WorkerTable::ByConnection(int64_t connection) {
  for (auto& [number, worker] : workers_) {
    if (connection != 0 && worker.connection == connection) return &worker;
  }
  return nullptr;
}

std::vector<int64_t> WorkerTable::LocalityOrder() const {
  std::vector<const WorkerRecord*> eligible;
  for (const auto& [number, worker] : workers_) {
    if (worker.eligible()) eligible.push_back(&worker);
  }
  std::sort(eligible.begin(), eligible.end(), [](const WorkerRecord* a, const WorkerRecord* b) {
    return std::tie(a->info.locality(), a->slot()) < std::tie(b->info.locality(), b->slot());
  });
  std::vector<int64_t> order;
  for (const WorkerRecord* worker : eligible) order.push_back(worker->number);
  return order;
}

int32_t WorkerTable::ready_count() const {
  return static_cast<int32_t>(std::count_if(workers_.begin(), workers_.end(),
                                            [](const auto& w) { return w.second.ready(); }));
}

}  // namespace annulus
