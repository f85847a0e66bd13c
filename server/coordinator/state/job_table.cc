#include "server/coordinator/state/job_table.h"

namespace annulus {

namespace {

std::shared_ptr<const Submission> WithoutSpec(const Submission& submission) {
  auto rest = std::make_shared<Submission>();
  const v1::RunJobRequest& request = submission.request;
  rest->request.set_request_id(request.request_id());
  rest->request.set_detached(request.detached());
  *rest->request.mutable_execution() = request.execution();
  rest->execution = submission.execution;
  rest->fingerprint = submission.fingerprint;
  return rest;
}

}  // namespace

JobRecord& JobTable::Add(std::string id, std::string principal,
                         std::shared_ptr<const Submission> submission) {
  const int64_t number = ++last_number_;
  JobRecord& job = jobs_[number];
  job.number = number;
  job.id = std::move(id);
  job.principal = std::move(principal);
  job.submission = std::move(submission);
  request_bytes_ += job.submission->bytes;
  by_id_[job.id] = number;
  if (!job.request_id().empty()) {
    by_request_[{job.principal, std::string(job.request_id())}] = number;
  }
  return job;
}

JobRecord* JobTable::Find(int64_t number) {
  auto it = jobs_.find(number);
  return it == jobs_.end() ? nullptr : &it->second;
}

const JobRecord* JobTable::Find(int64_t number) const {
  auto it = jobs_.find(number);
  return it == jobs_.end() ? nullptr : &it->second;
}

JobRecord* JobTable::Find(absl::string_view principal, absl::string_view id) {
  auto it = by_id_.find(id);
  if (it == by_id_.end()) return nullptr;
  JobRecord* job = Find(it->second);
  return job->principal == principal ? job : nullptr;
}

JobRecord* JobTable::FindRequest(absl::string_view principal, absl::string_view request_id) {
  if (request_id.empty()) return nullptr;
  auto it = by_request_.find({std::string(principal), std::string(request_id)});
  return it == by_request_.end() ? nullptr : Find(it->second);
}

JobRecord* JobTable::FindCall(int64_t call) {
  auto it = by_call_.find(call);
  return it == by_call_.end() ? nullptr : Find(it->second.job);
}

void JobTable::AddCall(JobRecord& job, int64_t call, CallKind kind) {
  (kind == CallKind::kWatcher ? job.watchers : job.owners).insert(call);
  if (kind == CallKind::kQuietOwner) job.quiet.insert(call);
  by_call_[call] = {job.number, 0};
}

void JobTable::CountRequest(int64_t call, int64_t bytes) {
  by_call_[call].bytes += bytes;
  request_bytes_ += bytes;
}

void JobTable::RemoveCall(int64_t call) {
  auto it = by_call_.find(call);
  if (it == by_call_.end()) return;
  JobRecord* job = Find(it->second.job);
  request_bytes_ -= it->second.bytes;
  job->owners.erase(call);
  job->watchers.erase(call);
  job->quiet.erase(call);
  job->call_deadlines.erase(call);
  by_call_.erase(it);
}

void JobTable::Hold(JobRecord& job) {
  ++held_;
  job.has_placement = false;
  job.placement = v1::Plan();
}

void JobTable::Unhold(JobRecord& job, absl::Time now) {
  --held_;
  Retire(job, now);
}

void JobTable::Retire(JobRecord& job, absl::Time since) {
  retired_.insert({since, job.number});
  request_bytes_ -= job.submission->bytes;
  job.submission = WithoutSpec(*job.submission);
  job.plan.reset();
  job.has_placement = false;
  job.placement = v1::Plan();
  for (auto& [number, event] : job.history) {
    if (event.has_state_changed()) event.mutable_state_changed()->clear_plan();
  }
}

absl::Time JobTable::Forget(absl::Time time, size_t keep) {
  while (!retired_.empty() && (retired_.begin()->first <= time || retired_.size() > keep)) {
    const int64_t number = retired_.begin()->second;
    retired_.erase(retired_.begin());
    Erase(number);
  }
  return retired_.empty() ? absl::InfiniteFuture() : retired_.begin()->first;
}

void JobTable::Erase(int64_t number) {
  auto it = jobs_.find(number);
  const JobRecord& job = it->second;
  by_id_.erase(job.id);
  auto request = by_request_.find({job.principal, std::string(job.request_id())});
  if (request != by_request_.end() && request->second == number) by_request_.erase(request);
  jobs_.erase(it);
}

std::vector<const JobRecord*> JobTable::List(absl::string_view principal, int64_t before,
                                             size_t count) const {
  std::vector<const JobRecord*> page;
  for (auto it = jobs_.lower_bound(before); it != jobs_.begin() && page.size() < count;) {
    --it;
    if (it->second.principal == principal) page.push_back(&it->second);
  }
  return page;
}

}  // namespace annulus
