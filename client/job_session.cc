#include "client/job_session.h"

#include <algorithm>
#include <utility>

#include "base/steady_time.h"
#include "client/pushed_inputs.h"
#include "client/session_end.h"
#include "client/session_errors.h"
#include "client/session_stats.h"
#include "client/shard_calls.h"
#include "client/strand.h"
#include "proto/convert.h"
#include "proto/grace.h"

namespace annulus {

// All that has state runs on the strand, the calls of the observer included.
class JobSession::Impl : public std::enable_shared_from_this<JobSession::Impl> {
 public:
  Impl(JobOptions options, JobObserver* observer)
      : options_(std::move(options)),
        observer_(observer),
        table_(TensorTable(options_.spec)),
        seen_(SteadyNow()) {}

  void Start();
  void Push(TensorChunk chunk, Credit credit);
  void CloseInputs();
  void Cancel(absl::Status status);

 private:
  enum class Stream { kUpload, kDownload };
  struct Placement {
    v1::Plan plan;
    std::vector<ShardRows> rows;
  };
  void Post(std::function<void(Impl*)> function) {
    strand_.Post(
        [self = shared_from_this(), function = std::move(function)] { function(self.get()); });
  }

  void OnEvent(const v1::JobEvent& event);
  void OnState(const v1::Job& job);
  void OnRunJobDone(absl::Status status);
  void OnPlaced(const v1::Plan& plan);
  void StartShards();
  void StartCalls(const v1::Plan& plan);
  ShardHandlers HandlersOf(int32_t rank);
  void TakeOutputs(int32_t rank, const std::vector<TensorChunk>& chunks, const Credit& credit);
  void OnShardDone(int32_t attempt, Stream stream, absl::Status status);
  void AwaitCoordinator(const absl::Status& status);
  void OnGraceOver();
  // Calls that are kept between jobs know no deadline, and a call that has ended keeps none.
  void KeepDeadline();
  void OnPush(TensorChunk chunk, Credit credit);
  void Moved(int64_t JobProgress::*counter, int64_t bytes);
  void Fail(absl::Status status);
  void EndWith(const absl::Status& error);
  void CancelShards();
  bool HasAttempt() const { return progress_.attempt > 0 && !waiting_.has_value() && !lost_; }
  bool HasAllOutputs() const { return HasAttempt() && outputs_missing_ == 0; }
  void FinishIfQuiet();

  JobOptions options_;  // Its inputs go at the end.
  JobObserver* const observer_;
  const std::vector<TensorInfo> table_;
  Strand strand_;  // All below is its.
  std::shared_ptr<RunJobCall> run_job_;
  std::optional<Placement> waiting_;  // Until the streams of the last attempt have ended.
  std::vector<ShardRows> rows_;       // Read by downloads too: changes only while there are none.
  std::vector<ShardCalls> calls_;     // By rank.
  PushedInputs pushed_;
  JobProgress progress_;
  std::string job_id_;
  SessionStats seen_;
  std::optional<v1::JobStats> stats_;  // As the coordinator says, from DRAINING on, or as seen.
  std::optional<absl::Status> worker_error_;  // Of this attempt, until the coordinator speaks.
  std::optional<absl::Status> lost_outputs_;  // Of a download of this attempt that did not get all.
  std::optional<absl::Status> unconfirmed_;   // How the job ended, whose rows stand if all come.
  std::optional<Grace> grace_;                // Of worker_error_.
  std::optional<Grace> outputs_grace_;        // Of unconfirmed_.
  std::optional<Grace> deadline_;             // Of outputs, when RunJob has ended.
  bool lost_ = false;  // This attempt; the coordinator takes its time to place another.
  bool inputs_closed_ = false, succeeded_ = false, run_job_open_ = true, finished_ = false;
  int live_shards_ = 0;      // Streams of workers.
  int outputs_missing_ = 0;  // Downloads, and uploads of a shared job, that have not ended well.
  std::optional<absl::Status> failed_;
};

void JobSession::Impl::Start() {
  const auto over = [weak = weak_from_this()] {
    if (const std::shared_ptr<Impl> self = weak.lock()) self->Post(&Impl::OnGraceOver);
  };
  grace_.emplace(options_.grace, over);
  outputs_grace_.emplace(options_.outputs_grace, over);
  RunJobCall::Handlers handlers;
  handlers.on_event = [self = shared_from_this()](v1::JobEvent event) {
    self->Post([event = std::move(event)](Impl* impl) { impl->OnEvent(event); });
  };
  handlers.on_done = [self = shared_from_this()](absl::Status status) {
    self->Post([status](Impl* impl) { impl->OnRunJobDone(status); });
  };
  Post([handlers = std::move(handlers)](Impl* impl) {
    const JobOptions& job = impl->options_;
    if (impl->failed_.has_value()) return handlers.on_done(*impl->failed_);
    impl->run_job_ = job.run_job(job.request, job.deadline, handlers);
  });
}

void JobSession::Impl::OnEvent(const v1::JobEvent& event) {
  if (failed_.has_value()) return;
  if (finished_) {
    // The outputs are here; to compute them again helps nobody.
    if (event.has_placed()) run_job_->Cancel();
    return;
  }
  job_id_ = event.job_id();
  switch (event.event_case()) {
    case v1::JobEvent::kStateChanged:
      OnState(event.state_changed());
      break;
    case v1::JobEvent::kPlaced:
      OnPlaced(event.placed());
      break;
    case v1::JobEvent::kProgress:
      progress_.segments_done = event.progress().segments_done();
      progress_.segments = event.progress().segments();
      break;
    default:  // Every shard of a new plan is sent, and fetched as soon as it can be.
      break;
  }
  if (!failed_.has_value()) observer_->OnProgress(progress_);
  FinishIfQuiet();
}

void JobSession::Impl::OnState(const v1::Job& job) {
  progress_.state = job.state();
  if (job.has_stats()) stats_ = job.stats();
  lost_ |= job.state() == v1::Job::STATE_QUEUED && progress_.attempt > 0;
  if (job.state() == v1::Job::STATE_SUCCEEDED) {
    succeeded_ = true;
  } else if (job.state() == v1::Job::STATE_FAILED || job.state() == v1::Job::STATE_CANCELLED) {
    const absl::Status error = ErrorFromProto(job.error());
    EndWith(error.ok() ? absl::UnknownError("the job ended without saying why") : error);
  }
}

void JobSession::Impl::OnRunJobDone(absl::Status status) {
  run_job_open_ = false;
  options_.open.reset();
  if (finished_) return;
  if (status.ok() && !succeeded_) {
    status = absl::UnavailableError("the coordinator ended the call before the job");
  }
  if (!status.ok()) {
    EndWith(NameExpiry(status, progress_.state <= v1::Job::STATE_QUEUED));
  } else if (live_shards_ > 0 && options_.deadline != absl::InfiniteFuture()) {
    KeepDeadline();
  }
  FinishIfQuiet();
}

void JobSession::Impl::KeepDeadline() {
  deadline_.emplace(options_.deadline - SteadyNow(), [weak = weak_from_this()] {
    const auto late = absl::DeadlineExceededError("the outputs did not come in time");
    if (const auto self = weak.lock()) self->Cancel(NameExpiry(late, /*waited=*/false));
  });
  deadline_->Begin();
}

void JobSession::Impl::OnPlaced(const v1::Plan& plan) {
  if (progress_.attempt != 0 && (!options_.inputs.has_value() || !options_.outputs.has_value())) {
    return Fail(SendAgainError());
  }
  absl::StatusOr<std::vector<ShardRows>> rows = RowsOfPlan(plan, options_.spec);
  if (!rows.ok()) return Fail(rows.status());
  waiting_ = Placement{plan, *std::move(rows)};
  progress_.attempt = std::max(plan.attempt(), 1);
  progress_.state = v1::Job::STATE_UPLOADING;
  CancelShards();
  if (live_shards_ == 0) StartShards();
}

void JobSession::Impl::StartShards() {
  const v1::Plan plan = std::move(waiting_->plan);
  rows_ = std::move(waiting_->rows);
  waiting_.reset();
  lost_ = false;
  worker_error_.reset();
  grace_->CallOff();
  lost_outputs_.reset();
  stats_.reset();
  seen_.Placed(job_id_, plan, SteadyNow());
  progress_.bytes_sent = progress_.bytes_to_send = 0;
  progress_.bytes_received = progress_.bytes_to_receive = 0;
  calls_.assign(plan.shards_size(), ShardCalls());
  pushed_ = PushedInputs();
  outputs_missing_ = 0;
  for (const v1::ShardPlan& shard : plan.shards()) {
    progress_.bytes_to_send += shard.input_bytes();
    progress_.bytes_to_receive += shard.output_bytes();
    live_shards_ += (shard.input_bytes() > 0) + (shard.output_bytes() > 0);
    if (shard.output_bytes() > 0) ++outputs_missing_;
    if (shard.input_bytes() > 0 && MayBeJoined(options_.request)) ++outputs_missing_;
    if (shard.input_bytes() > 0) pushed_.Add(shard.rank(), shard.input_bytes());
  }
  if (options_.inputs.has_value()) StartCalls(plan);
  observer_->OnPlaced(job_id_, plan);
  if (options_.inputs.has_value()) return;
  Post([plan](Impl* impl) { impl->StartCalls(plan); });  // After what was pushed just now.
}

void JobSession::Impl::StartCalls(const v1::Plan& plan) {
  const ShardCallOptions options{options_.worker_channel, options_.exchanges, options_.metadata,
                                 options_.deadline, table_};
  const InputMemory* inputs = options_.inputs.has_value() ? &*options_.inputs : nullptr;
  for (const v1::ShardPlan& shard : plan.shards()) {
    const int32_t rank = shard.rank();
    calls_[rank] =
        ShardCalls(options, shard, rows_[rank], inputs, &pushed_, HandlersOf(shard.rank()));
  }
  if (failed_.has_value()) CancelShards();
}

ShardHandlers JobSession::Impl::HandlersOf(int32_t rank) {
  const std::shared_ptr<Impl> self = shared_from_this();
  ShardHandlers handlers;
  handlers.sent = [self](int64_t bytes) {
    self->Post([bytes](Impl* impl) { impl->Moved(&JobProgress::bytes_sent, bytes); });
  };
  handlers.sink = [self, rank](const auto& chunks, const Credit& credit) {
    self->TakeOutputs(rank, chunks, credit);
  };
  handlers.report = [self, attempt = progress_.attempt, rank](const v1::ShardReport& report) {
    self->Post([=](Impl* impl) {
      if (attempt == impl->progress_.attempt) impl->seen_.Reported(rank, report);
    });
  };
  const auto done = [&](Stream stream) {
    return [self, attempt = progress_.attempt, stream](absl::Status status) {
      self->Post([=](Impl* impl) { impl->OnShardDone(attempt, stream, status); });
    };
  };
  handlers.uploaded = done(Stream::kUpload);
  handlers.downloaded = done(Stream::kDownload);
  return handlers;
}

// On a thread of the download's stream, beside the strand: ranks write to disjoint rows.
void JobSession::Impl::TakeOutputs(int32_t rank, const std::vector<TensorChunk>& chunks,
                                   const Credit& credit) {
  int64_t bytes = 0;
  for (const TensorChunk& chunk : chunks) bytes += static_cast<int64_t>(chunk.data.size());
  auto parts = std::make_shared<std::vector<TensorChunk>>();
  if (options_.outputs.has_value()) {
    PlaceChunks(table_, rows_[rank], chunks, *options_.outputs);
  } else {
    *parts = GatherChunks(table_, rows_[rank], chunks);
  }
  Post([bytes, parts, credit](Impl* impl) {
    if (!parts->empty() && !impl->failed_.has_value()) {
      impl->observer_->OnOutput(std::move(*parts), credit);
    }
    impl->Moved(&JobProgress::bytes_received, bytes);
  });
}

void JobSession::Impl::Moved(int64_t JobProgress::*counter, int64_t bytes) {
  progress_.*counter += bytes;
  if (!failed_.has_value()) observer_->OnProgress(progress_);
}

void JobSession::Impl::OnShardDone(int32_t attempt, Stream stream, absl::Status status) {
  --live_shards_;
  const bool old = attempt != progress_.attempt || !HasAttempt();
  // A worker ends the streams of a job that is over; what became of the inputs is then known from
  // the job.
  const bool decides = CoordinatorDecides(status);
  const bool over = (succeeded_ || unconfirmed_) && stream == Stream::kUpload && decides;
  if (!old && stream == Stream::kUpload && status.ok()) seen_.Uploaded(SteadyNow());
  const bool download = stream == Stream::kDownload;
  if (!old && (download || MayBeJoined(options_.request))) {
    if (status.ok()) --outputs_missing_;
    if (!status.ok()) lost_outputs_ = download ? status : InputsUnknownError();
  }
  if (!status.ok() && !old && !over && !failed_.has_value()) {
    const bool told = !run_job_open_ || unconfirmed_.has_value();
    decides && !told ? AwaitCoordinator(status)
                     : Fail(decides ? unconfirmed_.value_or(status) : status);
  }
  if (waiting_.has_value() && live_shards_ == 0 && !failed_.has_value()) StartShards();
  FinishIfQuiet();
}

void JobSession::Impl::AwaitCoordinator(const absl::Status& status) {
  worker_error_ = WithReason(status, "WORKER_UNREACHABLE");
  grace_->Begin();
}

void JobSession::Impl::OnGraceOver() {
  const auto& error = unconfirmed_.has_value() ? unconfirmed_ : worker_error_;
  const auto& grace = unconfirmed_.has_value() ? outputs_grace_ : grace_;
  if (!error.has_value() || lost_ || finished_ || !grace->Passed()) return;
  Fail(*error);
  FinishIfQuiet();
}

void JobSession::Impl::Push(TensorChunk chunk, Credit credit) {
  // Before the strand, which is for decisions: a checksum of 1 MiB takes a tenth of a millisecond.
  const absl::Status status = VerifyCrc(chunk);
  auto shared = std::make_shared<TensorChunk>(std::move(chunk));
  Post([status, shared, credit = std::move(credit)](Impl* impl) {
    status.ok() ? impl->OnPush(std::move(*shared), credit) : impl->Fail(status);
  });
}

void JobSession::Impl::OnPush(TensorChunk chunk, Credit credit) {
  if (failed_.has_value()) return;
  if (calls_.empty() || inputs_closed_) return Fail(OutOfTurnError(!calls_.empty()));
  absl::StatusOr<std::vector<TensorChunk>> parts =
      ScatterToRanks(options_.spec, table_, rows_, std::move(chunk));
  if (!parts.ok()) return Fail(parts.status());
  const absl::Status pushed = pushed_.Push(*std::move(parts), credit);
  if (!pushed.ok()) Fail(pushed);
}

void JobSession::Impl::CloseInputs() {
  Post([](Impl* impl) {
    impl->inputs_closed_ = true;
    // Another call's rows may have made its shards complete, which would pass for an answer.
    const int64_t missing = impl->pushed_.bytes_missing();
    if (missing > 0 && MayBeJoined(impl->options_.request)) impl->Fail(MissingRowsError(missing));
    impl->pushed_.Close();
  });
}

void JobSession::Impl::Cancel(absl::Status status) {
  Post([status](Impl* impl) {
    impl->Fail(status);
    impl->FinishIfQuiet();
  });
}

void JobSession::Impl::Fail(absl::Status status) {
  if (failed_.has_value() || finished_) return;
  failed_ = std::move(status);
  if (run_job_ != nullptr) run_job_->Cancel();
  CancelShards();
}

// What the workers have sent by then is still to come.
void JobSession::Impl::EndWith(const absl::Status& error) {
  if (failed_.has_value() || unconfirmed_.has_value()) return;
  const bool may_come = HasAttempt() && !lost_outputs_.has_value() && options_.outputs.has_value();
  if (!may_come || !StandsUnconfirmed(options_.spec, error)) return Fail(error);
  unconfirmed_ = error;
  absl::IsDeadlineExceeded(error) ? CancelShards() : outputs_grace_->Begin();
}

void JobSession::Impl::CancelShards() {
  for (const ShardCalls& calls : calls_) calls.Cancel();
  pushed_.Close();
}

void JobSession::Impl::FinishIfQuiet() {
  if (finished_ || live_shards_ > 0) return;
  if (!stats_.has_value()) stats_ = seen_.Get();
  // With all rows here and checked, nothing that the coordinator may still say changes them.
  const bool complete = !failed_.has_value() && HasAllOutputs() && stats_.has_value();
  if (run_job_open_ && (!complete || AwaitsEndOfCall(options_.request, options_.spec))) return;
  finished_ = true;
  calls_.clear();
  pushed_ = PushedInputs();
  options_.inputs.reset();
  if (!failed_.has_value() && !HasAllOutputs()) {
    failed_ = lost_outputs_.value_or(OutputsGoneError());
  }
  if (!failed_.has_value() && unconfirmed_.has_value()) {
    observer_->OnUnconfirmed(*unconfirmed_, /*all_reported=*/stats_.has_value());
  }
  observer_->OnDone(failed_.value_or(absl::OkStatus()), stats_.value_or(seen_.Heard()));
}

std::shared_ptr<JobSession> JobSession::Make(JobOptions options, JobObserver* observer) {
  return std::shared_ptr<JobSession>(
      new JobSession(std::make_shared<Impl>(std::move(options), observer)));
}

void JobSession::Run() { impl_->Start(); }

void JobSession::Push(TensorChunk chunk, Credit credit) {
  impl_->Push(std::move(chunk), std::move(credit));
}

void JobSession::CloseInputs() { impl_->CloseInputs(); }

void JobSession::Cancel(absl::Status status) { impl_->Cancel(std::move(status)); }

}  // namespace annulus
