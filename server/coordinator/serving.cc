#include "server/coordinator/serving.h"

#include <algorithm>

#include "attention/capability.h"
#include "server/coordinator/errors.h"
#include "server/coordinator/group_family.h"

namespace annulus {

absl::Status CheckServedBy(const control::v1::Register& worker, const Submission& job) {
  if (job.spec.arithmetic == Arithmetic::kBf16x3 && worker.bf16x3_flops_per_second() == 0) {
    return ArithmeticNotServedError(worker.slot(), worker.backend());
  }
  std::vector<Capability> lacks;
  for (const control::v1::Lack& lack : worker.lacks()) {
    if (job.features.count(lack.feature()) == 0) continue;
    lacks.push_back({lack.feature(), /*served=*/false, lack.why_not(), /*field_path=*/""});
  }
  return CheckNotLacking(lacks, job.spec, job.execution);
}

bool FirstServe(const Core& core, const std::vector<int64_t>& workers, size_t size,
                const Submission& job) {
  if (workers.size() < size) return false;
  return std::all_of(workers.begin(), workers.begin() + static_cast<int64_t>(size),
                     [&](int64_t number) {
                       const WorkerRecord* worker = core.workers.Find(number);
                       return worker != nullptr && CheckServedBy(worker->info, job).ok();
                     });
}

bool HasServers(const Core& core, int32_t size, const Submission& job) {
  if (size == 1) {
    const auto& workers = core.workers.all();
    return std::any_of(workers.begin(), workers.end(), [&](const auto& one) {
      return one.second.ready() && CheckServedBy(one.second.info, job).ok();
    });
  }
  const auto family = GroupFamily(core.workers.LocalityOrder());
  return std::any_of(family.begin(), family.end(), [&](const std::vector<int64_t>& members) {
    return FirstServe(core, members, static_cast<size_t>(size), job);
  });
}

absl::Status CheckServers(const Core& core, int32_t world_size, const Submission& job) {
  if (HasServers(core, std::max(1, world_size), job)) return absl::OkStatus();
  for (const auto& [number, worker] : core.workers.all()) {
    if (!worker.ready()) continue;
    if (absl::Status lacks = CheckServedBy(worker.info, job); !lacks.ok()) return lacks;
  }
  return absl::OkStatus();
}

}  // namespace annulus
