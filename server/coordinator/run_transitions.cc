#include "server/coordinator/run_transitions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "server/coordinator/job_transitions.h"
#include "server/coordinator/kept_state_transitions.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/segment_scheduler.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using State = RunRecord::State;

// One event about one rank of a live run.
struct Report {
  CoordinatorTables& tables;
  RunRecord& run;
  JobRecord& job;
  int32_t number;
  RunRank& rank;
};

bool All(const RunRecord& run, bool RunRank::*flag) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [=](const RunRank& r) { return r.*flag; });
}

void FailJob(const Report& report, const v1::Error& error) {
  absl::Status status = ErrorFromProto(error);
  if (status.ok()) status = absl::InternalError("a worker reported a failure without an error");
  EndJob(report.tables, report.job, v1::Job::STATE_FAILED, std::move(status));
}

// Continues if the inputs of all ranks are complete. Workers report this for ranks without inputs
// too.
void GoOnIfUploaded(const Report& report) {
  CoordinatorTables& tables = report.tables;
  RunRecord& run = report.run;
  JobRecord& job = report.job;
  if (!All(run, &RunRank::complete)) return;
  job.uploaded = tables.now;
  tables.advance_again = tables.place_again = true;
  if (run.solo()) {
    // The worker continues without a command.
    run.state = State::kRunning;
    SetState(tables, job, v1::Job::STATE_RUNNING);
  } else {
    run.state = State::kReady;
    SetState(tables, job, v1::Job::STATE_READY);
  }
  ArmJobTimer(tables, job);
}

void OnComplete(const Report& report) {
  if (report.run.state != State::kUploading) return;
  report.rank.complete = true;
  GoOnIfUploaded(report);
}

void OnPrepared(const Report& report, const control::v1::Prepared& prepared) {
  RunRecord& run = report.run;
  if (run.state != State::kPreparing || report.rank.prepared) return;
  report.rank.prepared = true;
  report.rank.preparation = prepared;
  if (!All(run, &RunRank::prepared)) return;
  const absl::Status agreed = CheckPrepared(run);
  if (!agreed.ok()) {
    EndJob(report.tables, report.job, v1::Job::STATE_FAILED, agreed);
    return;
  }
  SetSegments(run);
  run.state = State::kPrepared;
  run.waits_since = report.tables.now;
  report.tables.advance_again = true;
}

void OnSegmentDone(const Report& report, const control::v1::SegmentDone& done) {
  RunRecord& run = report.run;
  // A rank may be one segment ahead of another, but never in a segment that was not issued.
  if (done.segment() != report.rank.segments_done || done.segment() >= run.issued) return;
  const int32_t before = run.SegmentsDone();
  ++report.rank.segments_done;
  report.tables.advance_again = true;
  const int32_t now = run.SegmentsDone();
  if (now > before && now == run.issued) run.waits_since = report.tables.now;
  if (now == before || run.segments == 1) return;
  v1::JobEvent event;
  event.mutable_progress()->set_segments_done(now);
  event.mutable_progress()->set_segments(run.segments);
  Notify(report.tables, report.job, std::move(event));
}

void FinishIfDrained(const Report& report) {
  if (report.run.state != State::kDraining || !All(report.run, &RunRank::drained)) return;
  EndJob(report.tables, report.job, v1::Job::STATE_SUCCEEDED, absl::OkStatus());
}

void StartDraining(const Report& report) {
  CoordinatorTables& tables = report.tables;
  JobRecord& job = report.job;
  report.run.state = State::kDraining;
  if (job.detached()) job.result_deadline = tables.now + ResultTtl(tables, job);
  SetState(tables, job, v1::Job::STATE_DRAINING);
  ArmJobTimer(tables, job);
  tables.place_again = tables.advance_again = tables.family_dirty = true;
}

// The outputs of a short solo run also report that its inputs were complete.
void InferComplete(const Report& report, absl::Duration since) {
  OnComplete(report);
  report.job.uploaded = std::max(report.job.placed, report.tables.now - since);
}

void NotePace(const Report& report, const v1::ShardReport& took) {
  WorkerRecord* worker = report.tables.workers.Find(report.rank.worker);
  if (worker == nullptr) return;
  const absl::Duration tasks =
      DurationFromProto(took.running()) - DurationFromProto(took.exposed_communication());
  worker->paces.Add(worker->rates, report.job.submission->spec, report.run.plan->cost,
                    report.number, absl::ToDoubleSeconds(tasks));
}

// Notes the measured time of the execution, after all ranks have run.
void NoteWay(CoordinatorTables& tables, const RunRecord& run, Operation operation) {
  absl::Duration longest;
  for (const RunRank& rank : run.ranks)
    longest = std::max(longest, DurationFromProto(rank.report.running()));
  const JobPlan& plan = *run.plan;
  tables.ways.Add(plan.execution, operation, plan.cost.seconds,
                  absl::ToDoubleSeconds(longest) + plan.cost.job_seconds, plan.factor);
}

void OnOutputReady(const Report& report, const v1::ShardReport& took, absl::Duration age) {
  RunRecord& run = report.run;
  if (run.solo() && run.state == State::kUploading) {
    InferComplete(report, DurationFromProto(took.running()) + age);
  }
  if (run.state != State::kRunning || report.rank.output_ready) return;
  if (!run.solo() && report.rank.segments_done < run.segments) return;
  report.rank.output_ready = true;
  report.rank.report = took;
  NotePace(report, took);
  report.tables.ledger.ReleaseDevice(run.number, report.rank.worker);
  if (run.plan->bytes[report.number].output == 0) report.rank.drained = true;
  report.tables.place_again = report.tables.advance_again = true;
  if (All(run, &RunRank::output_ready)) {
    NoteWay(report.tables, run, report.job.submission->spec.operation);
    StartDraining(report);
  }
  v1::JobEvent event;
  event.mutable_rows_ready()->set_attempt(run.attempt);
  event.mutable_rows_ready()->set_rank(report.number);
  Notify(report.tables, report.job, std::move(event));
  FinishIfDrained(report);
}

void OnDrained(const Report& report, const control::v1::OutputDrained& drained) {
  if (drained.has_report())
    OnOutputReady(report, drained.report(), DurationFromProto(drained.age()));
  // A job without outputs has ended now: its run waits for Dropped.
  if (!report.rank.output_ready || !report.run.live()) return;
  report.rank.drained = true;
  if (report.run.solo() && !report.run.keep) RankFreed(report.tables, report.run, report.number);
  FinishIfDrained(report);
}

// A run that is ending only counts its segments and its ranks.
void OnEndingEvent(CoordinatorTables& tables, RunRecord& run, int32_t rank,
                   const control::v1::WorkerEvent& event) {
  if (event.has_dropped()) {
    if (run.state == State::kDropping) RankGone(tables, run.number, rank);
    return;
  }
  if (!event.has_segment_done()) return;
  RunRank& of = run.ranks[rank];
  if (event.segment_done().segment() != of.segments_done || of.segments_done >= run.issued) return;
  ++of.segments_done;
  ContinueHalting(tables, run.number);
}

const control::v1::ShardKey& ShardOf(const control::v1::WorkerEvent& event) {
  switch (event.event_case()) {
    case control::v1::WorkerEvent::kShardComplete:
      return event.shard_complete().shard();
    case control::v1::WorkerEvent::kShardAbandoned:
      return event.shard_abandoned().shard();
    case control::v1::WorkerEvent::kPrepared:
      return event.prepared().shard();
    case control::v1::WorkerEvent::kSegmentDone:
      return event.segment_done().shard();
    case control::v1::WorkerEvent::kOutputReady:
      return event.output_ready().shard();
    case control::v1::WorkerEvent::kOutputDrained:
      return event.output_drained().shard();
    case control::v1::WorkerEvent::kShardFailed:
      return event.shard_failed().shard();
    default:
      return event.dropped().shard();
  }
}

void OnLiveEvent(const Report& report, const control::v1::WorkerEvent& event) {
  switch (event.event_case()) {
    case control::v1::WorkerEvent::kShardComplete:
      return OnComplete(report);
    case control::v1::WorkerEvent::kShardAbandoned:
      return FailJob(report, event.shard_abandoned().error());
    case control::v1::WorkerEvent::kPrepared:
      return OnPrepared(report, event.prepared());
    case control::v1::WorkerEvent::kSegmentDone:
      return OnSegmentDone(report, event.segment_done());
    case control::v1::WorkerEvent::kOutputReady:
      return OnOutputReady(report, event.output_ready().report(),
                           DurationFromProto(event.output_ready().age()));
    case control::v1::WorkerEvent::kOutputDrained:
      return OnDrained(report, event.output_drained());
    case control::v1::WorkerEvent::kShardFailed:
      return FailJob(report, event.shard_failed().error());
    default:
      return;
  }
}

}  // namespace

void OnShardEvent(CoordinatorTables& tables, int64_t worker,
                  const control::v1::WorkerEvent& event) {
  const control::v1::ShardKey& shard = ShardOf(event);
  RunRecord* run = tables.runs.Find(shard);
  if (run == nullptr) return;
  const int32_t rank = run->RankOf(worker);
  if (rank < 0 || rank != shard.rank()) return;
  if (!run->live()) return OnEndingEvent(tables, *run, rank, event);
  OnLiveEvent({tables, *run, *tables.jobs.Find(run->job), rank, run->ranks[rank]}, event);
}

void AdvanceRuns(CoordinatorTables& tables) {
  while (tables.advance_again) {
    tables.advance_again = false;
    PrepareRuns(tables);
    IssueSegments(tables);
  }
}

void LoseRun(CoordinatorTables& tables, int64_t number, const absl::Status& cause) {
  RunRecord* run = tables.runs.Find(number);
  if (run == nullptr) return;
  if (run->state == State::kKept) return LoseKeptRun(tables, *run);
  const bool was_live = run->live();
  const int64_t job = run->job;
  HaltRun(tables, number, Group::kGone);
  if (was_live) RunAgain(tables, *tables.jobs.Find(job), cause);
}

}  // namespace annulus
