#include "tests/simulation/coverage.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace annulus {
namespace {

using control::v1::WorkerEvent;

constexpr char kOver[] = "over";

struct Expected {
  const char* event;
  std::vector<const char*> states;
};

// Possible pairs. Impossible ones are not listed: after a worker was ordered to drop a shard, it
// reports only Dropped and what was in transit (hence "dropping", and "over" if the worker was lost
// meanwhile).
const std::vector<Expected>& Reachable() {
  static const auto* table = new std::vector<Expected>{
      {"ShardComplete", {"uploading", "dropping"}},
      {"ShardAbandoned", {"uploading", "running", "draining", "dropping"}},
      {"Prepared", {"preparing", "dropping"}},
      {"SegmentDone", {"running", "halting", "dropping"}},
      {"OutputReady", {"uploading", "running", "halting", "dropping"}},
      {"OutputDrained", {"running", "draining", "dropping"}},
      {"ShardFailed", {"uploading", "preparing", "running", "halting", "dropping"}},
      {"Dropped", {"dropping", kOver}},
      {"GroupOpened", {"opening", "aborting"}},
      {"GroupConnected", {"connecting", "aborting"}},
      {"GroupBroken", {"ready", "aborting"}},
      {"GroupClosed", {"closing", "aborting", kOver}},
      {"Register", {"unknown", "ready", "suspect", "leaving"}},
      {"Beat", {"ready", "suspect", "leaving", "unknown"}},
      {"Leaving", {"ready"}},
      {"WorkerGone", {"ready", "leaving", "unknown"}},
      {"RunJob",
       {"QUEUED", "UPLOADING", "READY", "RUNNING", "DRAINING", "SUCCEEDED", "FAILED", "CANCELLED",
        "none"}},
      {"CallGone", {"QUEUED", "UPLOADING", "READY", "RUNNING", "DRAINING", "planning", "none"}},
      {"CancelJob",
       {"QUEUED", "UPLOADING", "READY", "RUNNING", "DRAINING", "SUCCEEDED", "FAILED", "CANCELLED",
        "none"}},
      {"WatchJob",
       {"QUEUED", "UPLOADING", "READY", "RUNNING", "DRAINING", "SUCCEEDED", "FAILED", "CANCELLED",
        "none"}},
      {"GetJob",
       {"QUEUED", "UPLOADING", "READY", "RUNNING", "DRAINING", "SUCCEEDED", "FAILED", "CANCELLED",
        "none"}},
      {"ReleaseState", {"none", "awaited", "held", "over"}},
      {"Gradients", {"none", "awaited", "held", "over"}},
      {"PlanJob", {"serving", "unready", "draining"}},
      {"PlanGradients", {"none", "awaited", "held", "over"}},
      {"ListJobs", {"serving", "unready", "draining"}},
      {"GetServerInfo", {"serving", "unready", "draining"}},
      {"Planned", {"job", "dry run", "forgotten"}},
      {"Tick", {"serving", "unready", "draining"}},
      {"Drain", {"serving", "unready", "draining"}},
  };
  return *table;
}

std::string StateOf(const JobRecord* job) {
  if (job == nullptr) return "none";
  return std::string(absl::StripPrefix(v1::Job::State_Name(job->state), "STATE_"));
}

std::string StateOfRun(const CoordinatorTables& tables, const control::v1::ShardKey& shard) {
  for (const auto& [number, run] : tables.runs.all()) {
    if (run.job_id == shard.job_id() && run.attempt == shard.attempt())
      return RunStateName(run.state);
  }
  return kOver;
}

std::string StateOfGroup(const CoordinatorTables& tables,
                         const control::v1::Generation& generation) {
  const GroupRecord* group = tables.groups.Find(generation.number());
  return group == nullptr || generation.term() != tables.term ? kOver
                                                              : GroupStateName(group->state);
}

std::string StateOfWorker(const WorkerRecord* worker) {
  if (worker == nullptr) return "unknown";
  return worker->leaving ? "leaving" : worker->suspect ? "suspect" : "ready";
}

const WorkerRecord* OnConnection(const CoordinatorTables& tables, int64_t connection) {
  for (const auto& [number, worker] : tables.workers.all()) {
    if (worker.connection == connection) return &worker;
  }
  return nullptr;
}

const WorkerRecord* OfSlot(const CoordinatorTables& tables, const std::string& slot) {
  for (const auto& [number, worker] : tables.workers.all()) {
    if (worker.slot() == slot) return &worker;
  }
  return nullptr;
}

const JobRecord* JobById(const CoordinatorTables& tables, const std::string& id) {
  for (const auto& [number, job] : tables.jobs.all()) {
    if (job.id == id) return &job;
  }
  return nullptr;
}

const char* StateKeptBy(const JobRecord* job) {
  if (job == nullptr || job->kept.status == KeptStatus::kNone) return "none";
  if (job->kept.status == KeptStatus::kAwaited) return "awaited";
  return job->kept.status == KeptStatus::kHeld ? "held" : "over";
}

const char* StateOfService(const CoordinatorTables& tables) {
  return tables.draining ? "draining" : tables.ready ? "serving" : "unready";
}

// For a call of a job or of a dry run.
std::string StateOfCall(const CoordinatorTables& tables, int64_t call) {
  for (const auto& [number, job] : tables.jobs.all()) {
    if (job.owners.count(call) + job.watchers.count(call) > 0) return StateOf(&job);
  }
  for (const auto& [number, planning] : tables.plannings) {
    if (planning.call == call) return "planning";
  }
  return "none";
}

const char* StateOfPlan(const CoordinatorTables& tables, int64_t plan) {
  const auto planning = tables.plannings.find(plan);
  if (planning == tables.plannings.end()) return "forgotten";
  return planning->second.call != 0 ? "dry run" : "job";
}

const JobRecord* JobByRequest(const CoordinatorTables& tables, const event::RunJob& run) {
  const JobRecord* latest = nullptr;
  for (const auto& [number, job] : tables.jobs.all()) {
    if (!job.request_id().empty() && job.request_id() == run.submission->request.request_id()) {
      latest = &job;
    }
  }
  return latest;
}

}  // namespace

void EventCoverage::NoteWorker(const CoordinatorTables& tables, const event::WorkerReported& said) {
  const WorkerEvent& e = said.event;
  switch (e.event_case()) {
    case WorkerEvent::kRegister:
      return Count("Register", StateOfWorker(OfSlot(tables, e.register_().slot())));
    case WorkerEvent::kBeat:
      return Count("Beat", StateOfWorker(OnConnection(tables, said.connection)));
    case WorkerEvent::kLeaving:
      return Count("Leaving", StateOfWorker(OnConnection(tables, said.connection)));
    case WorkerEvent::kGroupOpened:
      return Count("GroupOpened", StateOfGroup(tables, e.group_opened().generation()));
    case WorkerEvent::kGroupConnected:
      return Count("GroupConnected", StateOfGroup(tables, e.group_connected().generation()));
    case WorkerEvent::kGroupBroken:
      return Count("GroupBroken", StateOfGroup(tables, e.group_broken().generation()));
    case WorkerEvent::kGroupClosed:
      return Count("GroupClosed", StateOfGroup(tables, e.group_closed().generation()));
    case WorkerEvent::kShardComplete:
      return Count("ShardComplete", StateOfRun(tables, e.shard_complete().shard()));
    case WorkerEvent::kShardAbandoned:
      return Count("ShardAbandoned", StateOfRun(tables, e.shard_abandoned().shard()));
    case WorkerEvent::kPrepared:
      return Count("Prepared", StateOfRun(tables, e.prepared().shard()));
    case WorkerEvent::kSegmentDone:
      return Count("SegmentDone", StateOfRun(tables, e.segment_done().shard()));
    case WorkerEvent::kOutputReady:
      return Count("OutputReady", StateOfRun(tables, e.output_ready().shard()));
    case WorkerEvent::kOutputDrained:
      return Count("OutputDrained", StateOfRun(tables, e.output_drained().shard()));
    case WorkerEvent::kShardFailed:
      return Count("ShardFailed", StateOfRun(tables, e.shard_failed().shard()));
    case WorkerEvent::kDropped:
      return Count("Dropped", StateOfRun(tables, e.dropped().shard()));
    case WorkerEvent::EVENT_NOT_SET:
      return;
  }
}

void EventCoverage::Note(const CoordinatorTables& tables, const Event& event) {
  if (const auto* said = std::get_if<event::WorkerReported>(&event))
    return NoteWorker(tables, *said);
  if (const auto* gone = std::get_if<event::WorkerGone>(&event)) {
    Count("WorkerGone", StateOfWorker(OnConnection(tables, gone->connection)));
  } else if (const auto* run = std::get_if<event::RunJob>(&event)) {
    Count("RunJob", StateOf(JobByRequest(tables, *run)));
    NoteState("Gradients", tables, *run->submission);
  } else if (const auto* plan = std::get_if<event::PlanJob>(&event)) {
    Count("PlanJob", StateOfService(tables));
    NoteState("PlanGradients", tables, *plan->submission);
  } else if (const auto* release = std::get_if<event::ReleaseState>(&event)) {
    Count("ReleaseState", StateKeptBy(JobById(tables, release->job_id)));
  } else if (const auto* call = std::get_if<event::CallGone>(&event)) {
    Count("CallGone", StateOfCall(tables, call->call));
  } else if (const auto* cancel = std::get_if<event::CancelJob>(&event)) {
    Count("CancelJob", StateOf(JobById(tables, cancel->job_id)));
  } else if (const auto* watch = std::get_if<event::WatchJob>(&event)) {
    Count("WatchJob", StateOf(JobById(tables, watch->job_id)));
  } else if (const auto* get = std::get_if<event::GetJob>(&event)) {
    Count("GetJob", StateOf(JobById(tables, get->job_id)));
  } else if (const auto* planned = std::get_if<event::Planned>(&event)) {
    Count("Planned", StateOfPlan(tables, planned->plan));
  } else {
    NoteOfService(tables, event);
  }
}

void EventCoverage::NoteOfService(const CoordinatorTables& tables, const Event& event) {
  const char* state = StateOfService(tables);
  if (std::get_if<event::ListJobs>(&event) != nullptr) Count("ListJobs", state);
  if (std::get_if<event::GetServerInfo>(&event) != nullptr) Count("GetServerInfo", state);
  if (std::get_if<event::Tick>(&event) != nullptr) Count("Tick", state);
  if (std::get_if<event::Drain>(&event) != nullptr) Count("Drain", state);
}

void EventCoverage::NoteState(const std::string& event, const CoordinatorTables& tables,
                              const Submission& submission) {
  const AttentionSpec& spec = submission.spec;
  if (spec.uses_state()) Count(event, StateKeptBy(JobById(tables, spec.gradients.state)));
}

void EventCoverage::Add(const EventCoverage& other) {
  for (const auto& [pair, count] : other.counts_) counts_[pair] += count;
}

std::vector<std::string> EventCoverage::Missing() const {
  std::vector<std::string> missing;
  for (const Expected& expected : Reachable()) {
    for (const char* state : expected.states) {
      if (counts_.count({expected.event, state}) == 0) {
        missing.push_back(absl::StrCat(expected.event, " in ", state));
      }
    }
  }
  return missing;
}

std::string EventCoverage::Table() const {
  std::string table, last;
  for (const auto& [pair, count] : counts_) {
    if (pair.first != last) absl::StrAppend(&table, table.empty() ? "" : "\n", pair.first, ":");
    last = pair.first;
    absl::StrAppend(&table, " ", pair.second, "=", count);
  }
  return table;
}

}  // namespace annulus
