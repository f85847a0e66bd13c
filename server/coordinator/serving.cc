#include "server/coordinator/serving.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "attention/validate/capability.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

absl::Status MixedWorkersError(const control::v1::Register& one,
                               const control::v1::Register& other) {
  const auto named = [](const control::v1::Register& worker) {
    return absl::StrCat(worker.slot(), " (", worker.arithmetic(), ")");
  };
  const std::string why =
      absl::StrCat("workers ", named(one), " and ", named(other),
                   " do not compute the same bits: start all workers with the same --kernel");
  return MakeError(absl::StatusCode::kFailedPrecondition, absl::StrCat("spec.deterministic: ", why),
                   ErrorDetail{"MIXED_WORKERS",
                               {{"slot", one.slot()}, {"other_slot", other.slot()}},
                               {{"spec.deterministic", why}},
                               {}});
}

// NOT_SERVED with the features that the worker lacks for the job, and the worker's name.
absl::Status LackError(const control::v1::Register& worker, const Submission& job) {
  std::vector<Capability> lacks;
  for (const control::v1::Lack& lack : worker.lacks()) {
    lacks.push_back({lack.feature(), /*served=*/false, lack.why_not(), /*field_path=*/""});
  }
  const absl::Status lacking = CheckNotLacking(lacks, job.spec, job.execution);
  ErrorDetail detail = DetailOf(lacking);
  detail.metadata["slot"] = worker.slot();
  detail.metadata["backend"] = worker.backend();
  return MakeError(
      lacking.code(),
      absl::StrCat(lacking.message(), " (worker ", worker.slot(), ", ", worker.backend(), ")"),
      detail);
}

}  // namespace

std::optional<std::string> WhyLacking(const control::v1::Register& worker,
                                      absl::string_view feature) {
  for (const control::v1::Lack& lack : worker.lacks()) {
    if (lack.feature() == feature) return lack.why_not();
  }
  return std::nullopt;
}

bool Serves(const control::v1::Register& worker, const Submission& job) {
  return std::none_of(
      worker.lacks().begin(), worker.lacks().end(),
      [&](const control::v1::Lack& lack) { return job.features.count(lack.feature()) != 0; });
}

bool FirstServe(const CoordinatorTables& tables, const std::vector<int64_t>& workers, size_t size,
                const Submission& job) {
  if (workers.size() < size) return false;
  return std::all_of(workers.begin(), workers.begin() + static_cast<int64_t>(size),
                     [&](int64_t number) {
                       const WorkerRecord* worker = tables.workers.Find(number);
                       return worker != nullptr && Serves(worker->info, job);
                     });
}

int32_t ServerCount(const CoordinatorTables& tables, const Submission& job) {
  const auto& workers = tables.workers.all();
  return static_cast<int32_t>(std::count_if(workers.begin(), workers.end(), [&](const auto& one) {
    return one.second.ready() && Serves(one.second.info, job);
  }));
}

bool HasServers(const CoordinatorTables& tables, const std::vector<std::vector<int64_t>>& family,
                int32_t size, const Submission& job) {
  if (size == 1) return ServerCount(tables, job) > 0;
  return std::any_of(family.begin(), family.end(), [&](const std::vector<int64_t>& members) {
    return FirstServe(tables, members, static_cast<size_t>(size), job);
  });
}

absl::Status FormationError(const CoordinatorTables& tables, int32_t size, const Submission& job) {
  absl::Status error;
  if (size == 1) return error;
  for (const std::vector<int64_t>& members : tables.Family()) {
    if (FirstServe(tables, members, static_cast<size_t>(size), job)) {
      error.Update(tables.groups.FormationError(members));
    }
  }
  return error;
}

absl::Status CheckAlike(const CoordinatorTables& tables, const Submission& job) {
  // A job that uses a state runs on the workers of the state, whichever others are present.
  if (!job.spec.deterministic || job.spec.uses_state()) return absl::OkStatus();
  const WorkerRecord* first = nullptr;
  for (const auto& [number, worker] : tables.workers.all()) {
    if (!worker.eligible() || !Serves(worker.info, job)) continue;
    if (first == nullptr) first = &worker;
    if (worker.info.arithmetic() != first->info.arithmetic()) {
      return MixedWorkersError(first->info, worker.info);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAnyServes(const CoordinatorTables& tables, const Submission& job) {
  const WorkerRecord* lacking = nullptr;
  bool suspect = false;
  for (const auto& [number, worker] : tables.workers.all()) {
    const bool serves = Serves(worker.info, job);
    if (serves && worker.ready()) return absl::OkStatus();
    if (serves && worker.eligible()) suspect = true;
    if (!serves && worker.ready() && lacking == nullptr) lacking = &worker;
  }
  if (suspect) return NoWorkersError(tables.options.retry_after);
  return lacking == nullptr ? absl::OkStatus() : LackError(lacking->info, job);
}

absl::Status CheckServers(const CoordinatorTables& tables, int32_t world_size,
                          const Submission& job) {
  RETURN_IF_ERROR(CheckAlike(tables, job));
  const int32_t size = std::max(1, world_size);
  if (HasServers(tables, tables.Family(), size, job)) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckAnyServes(tables, job));
  const int32_t servers = ServerCount(tables, job);
  if (servers == tables.workers.ready_count()) return absl::OkStatus();
  return TooFewServersError(size, servers);
}

}  // namespace annulus
