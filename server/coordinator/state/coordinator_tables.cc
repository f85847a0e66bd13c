#include "server/coordinator/state/coordinator_tables.h"

#include <algorithm>

#include "server/coordinator/state/group_table.h"

namespace annulus {

// The term is in microseconds, so that a restart within a second of the last one has a higher term.
CoordinatorTables::CoordinatorTables(CoordinatorOptions options_in,
                                     std::function<uint64_t()> random_in, PlanFunction plan_in,
                                     absl::Time now_in)
    : options(std::move(options_in)),
      random(std::move(random_in)),
      plan(std::move(plan_in)),
      now(now_in),
      started(now_in),
      term(std::max<int64_t>(1, absl::ToUnixMicros(now_in))) {}

std::vector<std::vector<int64_t>> CoordinatorTables::Family() const {
  return GroupFamily(workers.LocalityOrder(), options.limits.max_world_size);
}

bool CoordinatorTables::enough_workers() const {
  return workers.ready_count() >= std::max(1, options.min_workers);
}

size_t CoordinatorTables::queued_jobs() const {
  return queue.size() + std::count_if(plannings.begin(), plannings.end(), [this](const auto& p) {
           return p.second.job != 0 && !queue.Contains(p.second.job);
         });
}

void CoordinatorTables::ForgetPlan(int64_t plan) {
  if (plannings.erase(plan) != 0) Emit(action::ForgetPlan{plan});
}

void CoordinatorTables::Log(LogLevel level, absl::string_view job, std::string text) {
  Emit(action::Log{level, std::string(job), std::move(text), nullptr});
}

void CoordinatorTables::Send(int64_t number, control::v1::WorkerCommand message,
                             std::shared_ptr<const std::string> spec) {
  WorkerRecord* worker = workers.Find(number);
  if (worker == nullptr) return;
  message.set_term(term);
  message.set_ack(worker->events_received);
  const Command& kept = worker->log.Append({std::move(message), std::move(spec)});
  if (worker->connection != 0) Emit(action::SendCommand{worker->connection, kept});
  if (worker->log.overflown()) {
    doomed_workers.emplace_back(number, "it acknowledges no commands");
  }
}

control::v1::Generation CoordinatorTables::GenerationOf(int64_t group) const {
  control::v1::Generation generation;
  generation.set_term(term);
  generation.set_number(group);
  return generation;
}

}  // namespace annulus
