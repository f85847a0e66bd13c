#include "client/session/job_session.h"

#include <atomic>
#include <utility>

#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/session/session_state_machine.h"
#include "client/session/state_handoff.h"
#include "client/transport/pushed_inputs.h"
#include "client/transport/session_errors.h"
#include "client/transport/shard_calls.h"
#include "client/transport/strand.h"
#include "proto/rpc/shared_timer.h"

namespace annulus {

// Performs what its machine decides. All state, and all calls of the observer, belong to the
// strand.
class JobSession::Impl : public std::enable_shared_from_this<JobSession::Impl> {
 public:
  Impl(JobOptions options, JobObserver* observer)
      : options_(std::move(options)),
        observer_(observer),
        table_(TensorTable(options_.spec)),
        machine_(MachineOptions(options_), SteadyNow()) {}

  void Start();
  void Push(TensorChunk chunk, Credit credit);
  void CloseInputs();
  void Cancel(absl::Status status);

 private:
  using Stream = SessionStateMachine::Stream;

  static SessionStateMachine::Options MachineOptions(const JobOptions& job);
  void Post(std::function<void(Impl*)> function) {
    strand_.Post(
        [self = shared_from_this(), function = std::move(function)] { function(self.get()); });
  }
  void StartRunJob();
  void Do(SessionStateMachine::Actions actions);
  void StartStreams(SessionStateMachine::Placement placement);
  void StartCalls(const v1::Plan& plan);
  ShardHandlers HandlersOf(int32_t attempt, int32_t rank);
  void TakeOutputs(int32_t rank, const std::vector<TensorChunk>& chunks, const Credit& credit);
  void OnPush(TensorChunk chunk, bool verified, Credit credit);
  std::vector<TensorId> MissingTensors() const;  // Tensors of which rows were not pushed.
  void CancelStreams();
  void End(const SessionStateMachine::End& end);
  void SetAlarm();

  JobOptions options_;  // Its inputs are dropped at the end.
  JobObserver* const observer_;
  const std::vector<TensorInfo> table_;
  Strand strand_;  // Serialises everything below.
  SessionStateMachine machine_;
  std::shared_ptr<RunJobCall> run_job_;
  // Downloads read it on other threads. It changes only while there are no downloads.
  std::vector<ShardRows> rows_;
  std::vector<ShardCalls> calls_;  // By rank.
  PushedInputs pushed_;
  bool inputs_closed_ = false;
  // True if the plan has one rank: pushed chunks then go on unchanged, and the worker verifies
  // their CRCs. Written on the strand only.
  std::atomic<bool> passes_whole_{false};
  std::optional<SharedTimer> alarm_;  // Fires at alarm_at_.
  absl::Time alarm_at_ = absl::InfiniteFuture();
};

SessionStateMachine::Options JobSession::Impl::MachineOptions(const JobOptions& job) {
  SessionStateMachine::Options options;
  options.spec = &job.spec;
  options.inputs_in_memory = job.inputs.has_value();
  options.outputs_in_memory = job.outputs.has_value();
  options.may_be_joined = MayBeJoined(job.request);
  options.awaits_end_of_call = AwaitsEndOfCall(job.request, job.spec);
  options.grace = job.grace;
  options.outputs_grace = job.outputs_grace;
  options.deadline = job.deadline;
  return options;
}

void JobSession::Impl::Start() { Post(&Impl::StartRunJob); }

void JobSession::Impl::StartRunJob() {
  const std::shared_ptr<Impl> self = shared_from_this();
  RunJobCall::Handlers handlers;
  handlers.on_event = [self](v1::JobEvent event) {
    self->Post([event = std::move(event)](Impl* impl) {
      impl->Do(impl->machine_.OnJobEvent(event, SteadyNow()));
    });
  };
  handlers.on_done = [self](absl::Status status) {
    self->Post([status](Impl* impl) {
      impl->options_.open.reset();
      impl->Do(impl->machine_.OnRunJobDone(status, SteadyNow()));
    });
  };
  if (machine_.failed()) return handlers.on_done(absl::OkStatus());
  run_job_ = options_.run_job(options_.request, options_.deadline, std::move(handlers));
}

void JobSession::Impl::Do(SessionStateMachine::Actions actions) {
  if (actions.cancel_run_job && run_job_ != nullptr) run_job_->Cancel();
  if (actions.cancel_streams) CancelStreams();
  if (actions.start.has_value()) StartStreams(*std::move(actions.start));
  if (actions.tell_progress) observer_->OnProgress(machine_.progress());
  if (actions.end.has_value()) End(*actions.end);
  SetAlarm();
}

void JobSession::Impl::StartStreams(SessionStateMachine::Placement placement) {
  const v1::Plan& plan = placement.plan;
  rows_ = std::move(placement.rows);
  calls_.assign(plan.shards_size(), ShardCalls());
  pushed_ = PushedInputs();
  for (const v1::ShardPlan& shard : plan.shards()) {
    if (shard.input_bytes() > 0) pushed_.Add(shard.rank(), shard.input_bytes());
  }
  passes_whole_ = plan.shards_size() == 1;
  if (options_.inputs.has_value()) StartCalls(plan);
  observer_->OnPlaced(placement.job_id, plan);
  if (options_.inputs.has_value()) return;
  // Posted, so that chunks pushed in OnPlaced() are here first: a small shard can then go in one
  // message.
  Post([plan](Impl* impl) { impl->StartCalls(plan); });
}

void JobSession::Impl::StartCalls(const v1::Plan& plan) {
  const ShardCallOptions options{options_.worker_channel, options_.exchanges, options_.metadata,
                                 options_.deadline, table_};
  const InputMemory* inputs = options_.inputs.has_value() ? &*options_.inputs : nullptr;
  for (const v1::ShardPlan& shard : plan.shards()) {
    const int32_t rank = shard.rank();
    calls_[rank] = ShardCalls(options, shard, rows_[rank], inputs, &pushed_,
                              HandlersOf(machine_.progress().attempt, rank));
  }
  if (machine_.failed()) CancelStreams();
}

ShardHandlers JobSession::Impl::HandlersOf(int32_t attempt, int32_t rank) {
  const std::shared_ptr<Impl> self = shared_from_this();
  ShardHandlers handlers;
  handlers.sent = [self](int64_t bytes) {
    self->Post([bytes](Impl* impl) { impl->Do(impl->machine_.OnMoved(Stream::kUpload, bytes)); });
  };
  handlers.sink = [self, rank](const auto& chunks, const Credit& credit) {
    self->TakeOutputs(rank, chunks, credit);
  };
  handlers.report = [self, attempt, rank](const v1::ShardReport& report) {
    self->Post([=](Impl* impl) { impl->machine_.OnReport(attempt, rank, report); });
  };
  const auto done = [&](Stream stream) {
    return [self, attempt, stream](absl::Status status) {
      self->Post([=](Impl* impl) {
        impl->Do(impl->machine_.OnStreamDone(attempt, stream, status, SteadyNow()));
      });
    };
  };
  handlers.uploaded = done(Stream::kUpload);
  handlers.downloaded = done(Stream::kDownload);
  return handlers;
}

// Runs on a thread of the download's stream, not on the strand. Ranks write to disjoint rows.
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
    if (!parts->empty() && !impl->machine_.failed()) {
      impl->observer_->OnOutput(std::move(*parts), credit);
    }
    impl->Do(impl->machine_.OnMoved(Stream::kDownload, bytes));
  });
}

void JobSession::Impl::Push(TensorChunk chunk, Credit credit) {
  // Outside of the strand, which must not be blocked: the CRC of 1 MiB takes 0.1 ms.
  const bool verify = !passes_whole_;
  const absl::Status status = verify ? VerifyCrc(chunk) : absl::OkStatus();
  auto shared = std::make_shared<TensorChunk>(std::move(chunk));
  Post([status, verify, shared, credit = std::move(credit)](Impl* impl) {
    status.ok() ? impl->OnPush(std::move(*shared), verify, credit)
                : impl->Do(impl->machine_.OnFailure(status));
  });
}

void JobSession::Impl::OnPush(TensorChunk chunk, bool verified, Credit credit) {
  if (machine_.failed()) return;
  const auto push = [&]() -> absl::Status {
    // The job was placed again between Push() and here, on more than one rank.
    if (!verified && !passes_whole_) RETURN_IF_ERROR(VerifyCrc(chunk));
    if (calls_.empty() || inputs_closed_) return OutOfTurnError(!calls_.empty());
    ASSIGN_OR_RETURN(std::vector<TensorChunk> parts,
                     ScatterToRanks(options_.spec, table_, rows_, std::move(chunk)));
    return pushed_.Push(std::move(parts), credit);
  };
  const absl::Status pushed = push();
  if (!pushed.ok()) Do(machine_.OnFailure(pushed));
}

std::vector<TensorId> JobSession::Impl::MissingTensors() const {
  std::vector<TensorId> missing;
  for (const TensorInfo& tensor : table_) {
    const int64_t bytes = RowsOf(tensor, options_.spec) * tensor.row_bytes();
    const bool is_input = tensor.direction == Direction::kInput;
    if (is_input && pushed_.bytes_of(tensor.id) < bytes) missing.push_back(tensor.id);
  }
  return missing;
}

void JobSession::Impl::CloseInputs() {
  Post([](Impl* impl) {
    impl->inputs_closed_ = true;
    // Rows of another call may have completed the shards. Their outputs must not pass for this
    // call's answer.
    const int64_t missing = impl->pushed_.bytes_missing();
    if (missing > 0 && MayBeJoined(impl->options_.request)) {
      impl->Do(impl->machine_.OnFailure(MissingRowsError(missing, impl->MissingTensors())));
    }
    impl->pushed_.Close();
  });
}

void JobSession::Impl::Cancel(absl::Status status) {
  Post([status](Impl* impl) { impl->Do(impl->machine_.OnFailure(status)); });
}

void JobSession::Impl::CancelStreams() {
  for (const ShardCalls& calls : calls_) calls.Cancel();
  pushed_.Close();
}

void JobSession::Impl::End(const SessionStateMachine::End& end) {
  calls_.clear();
  pushed_ = PushedInputs();
  options_.inputs.reset();
  if (end.unconfirmed.has_value()) observer_->OnUnconfirmed(*end.unconfirmed, end.all_reported);
  observer_->OnDone(end.status, end.stats);
}

void JobSession::Impl::SetAlarm() {
  if (machine_.wake() == alarm_at_) return;
  alarm_at_ = machine_.wake();
  alarm_.reset();
  if (alarm_at_ == absl::InfiniteFuture()) return;
  alarm_.emplace(alarm_at_ - SteadyNow(), [weak = weak_from_this()] {
    if (const std::shared_ptr<Impl> self = weak.lock()) {
      self->Post([](Impl* impl) { impl->Do(impl->machine_.OnTime(SteadyNow())); });
    }
  });
  alarm_->Begin();
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
