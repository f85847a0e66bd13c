#include "client/attend_call.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/transport/session_errors.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

absl::Status CheckSize(const TensorInfo& tensor, int64_t rows, size_t bytes,
                       const AttendArguments& arguments) {
  const auto strides = arguments.strides.find(tensor.id);
  int64_t expected = rows * tensor.row_bytes();
  if (strides != arguments.strides.end()) {
    const bool output = tensor.direction != Direction::kInput;
    ASSIGN_OR_RETURN(expected, StridedBytes(tensor, rows, strides->second, output));
    if (static_cast<int64_t>(bytes) > expected) return absl::OkStatus();
  }
  if (static_cast<int64_t>(bytes) == expected) return absl::OkStatus();
  return InvalidField("TENSOR_BYTES_MISMATCH", TensorName(tensor.id),
                      absl::StrCat("has ", bytes, " bytes, but the spec requires ", expected));
}

absl::Status CheckMemory(const AttentionSpec& spec, const AttendArguments& arguments) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  const ShardRows rows = WholeJob(spec);
  for (const TensorInfo& tensor : table) {
    if (tensor.direction == Direction::kInput) {
      const auto input = arguments.inputs.find(tensor.id);
      if (input == arguments.inputs.end()) {
        return InvalidField("MISSING_TENSOR", TensorName(tensor.id), "this input is missing");
      }
      RETURN_IF_ERROR(CheckSize(tensor, rows.of(tensor).rows(), input->second.size(), arguments));
    } else if (const auto output = arguments.outputs.find(tensor.id);
               output != arguments.outputs.end()) {
      RETURN_IF_ERROR(CheckSize(tensor, rows.of(tensor).rows(), output->second.size(), arguments));
    }
  }
  const auto known = [&](TensorId id, Direction direction) -> absl::Status {
    const TensorInfo* tensor = FindTensor(table, id);
    if (tensor != nullptr && tensor->direction == direction) return absl::OkStatus();
    return InvalidField("UNKNOWN_TENSOR", TensorName(id), "the job has no such tensor");
  };
  for (const auto& [id, bytes] : arguments.inputs) RETURN_IF_ERROR(known(id, Direction::kInput));
  for (const auto& [id, bytes] : arguments.outputs) RETURN_IF_ERROR(known(id, Direction::kOutput));
  for (const auto& [id, strides] : arguments.strides) {
    if (arguments.inputs.count(id) + arguments.outputs.count(id) > 0) continue;
    return InvalidField("UNKNOWN_TENSOR", TensorName(id), "has strides, but no memory");
  }
  return absl::OkStatus();
}

absl::Status CancelledByCaller() { return absl::CancelledError("cancelled by the client"); }

}  // namespace

AttendCall::AttendCall(AttendContext context, AttendArguments arguments, absl::Time deadline,
                       Done done)
    : context_(std::move(context)),
      arguments_(std::move(arguments)),
      spec_(arguments_.spec),
      deadline_(deadline),
      done_(std::move(done)),
      retry_(std::max(arguments_.max_attempts, 1), RandomFraction) {}

void AttendCall::Start() {
  inputs_lease_ = std::shared_ptr<const void>(nullptr, [self = shared_from_this()](const void*) {
    const auto finish = [self] {
      const Done done = std::move(self->done_);
      self->result_status_.ok() ? done(std::move(self->result_)) : done(self->result_status_);
    };
    // This may run inside gRPC, so `done` is handed to the callback thread.
    self->context_.wakes ? finish() : self->context_.callbacks->Post(finish);
  });
  const absl::Status status = Check();
  status.ok() ? ChoosePath() : Deliver(status);
}

absl::Status AttendCall::Check() const {
  if (arguments_.max_attempts < 1) {
    return InvalidField("INVALID_REQUEST", "max_attempts", "must be at least 1");
  }
  RETURN_IF_ERROR(Validate(spec_, arguments_.execution, Limits()));
  if (!arguments_.upload_without_state) return CheckMemory(spec_, arguments_);
  if (!spec_.uses_state()) {
    return InvalidField("INVALID_REQUEST", "spec.gradients.state",
                        "must name a state, because upload_without_state is set");
  }
  const AttentionSpec whole = WithoutState(spec_);
  RETURN_IF_ERROR(Validate(whole, arguments_.execution, Limits()));
  return CheckMemory(whole, arguments_);
}

bool AttendCall::GiveUpState(const absl::Status& status) {
  if (!arguments_.upload_without_state || !spec_.uses_state() || !StateIsGone(status)) {
    return false;
  }
  result_.state_gone = DetailOf(status).reason;
  spec_ = WithoutState(spec_);
  return true;
}

void AttendCall::ChoosePath() {
  if (arguments_.path != DataPath::kAuto) return StartSession(arguments_.path);
  const int wait = BeginWait();
  if (wait == 0) return;
  const std::optional<DataPath> path =
      context_.choose_path([self = shared_from_this(), wait](DataPath found) {
        if (self->EndWait(wait)) self->StartSession(found);
      });
  if (path.has_value()) {
    if (EndWait(wait)) StartSession(*path);
    return;
  }
  context_.callbacks->PostAfter(deadline_ - SteadyNow(), [weak = weak_from_this(), wait] {
    const std::shared_ptr<AttendCall> self = weak.lock();
    if (self == nullptr || !self->EndWait(wait)) return;
    const absl::Status late =
        NameExpiry(absl::DeadlineExceededError(
                       "the deadline passed before the client had chosen a path to the workers"),
                   /*waited=*/true);
    self->Deliver(AfterAttempts(late, self->earlier_));
  });
}

int AttendCall::BeginWait() {
  {
    MutexLock lock(&mutex_);
    if (!cancelled_) return wait_ = ++waits_;
  }
  Deliver(CancelledByCaller());
  return 0;
}

bool AttendCall::EndWait(int wait) {
  MutexLock lock(&mutex_);
  if (wait_ != wait) return false;
  wait_ = 0;
  return true;
}

void AttendCall::StartSession(DataPath path) {
  const int number = ++result_.attempts;
  result_.path = path;
  job_id_.clear();
  unconfirmed_ = absl::OkStatus();
  self_ = shared_from_this();
  const std::shared_ptr<AttendCall> self = self_;  // The session may end before this function.
  {
    MutexLock lock(&mutex_);
    session_ = number;
  }
  const std::function<void()> cancel =
      path == DataPath::kDirect ? StartDirect(BorrowInputs()) : StartGateway(BorrowInputs());
  {
    MutexLock lock(&mutex_);
    if (session_ != number) return;
    cancel_session_ = cancel;
    if (!cancelled_) return;
  }
  cancel();
}

InputMemory AttendCall::BorrowInputs() {
  InputMemory inputs;
  inputs.owner = inputs_lease_;
  for (const auto& [id, bytes] : arguments_.inputs) inputs.tensors[id] = bytes.data();
  inputs.strides = arguments_.strides;
  return inputs;
}

OutputMemory AttendCall::Outputs() const {
  OutputMemory outputs;
  for (const auto& [id, bytes] : arguments_.outputs) outputs.tensors[id] = bytes.data();
  outputs.strides = arguments_.strides;
  return outputs;
}

std::function<void()> AttendCall::StartDirect(InputMemory inputs) {
  JobOptions options;
  options.run_job = RemoteRunJob(context_.channel(context_.address), context_.metadata);
  options.worker_channel = context_.channel;
  options.exchanges = context_.exchanges;
  options.metadata = context_.metadata;
  options.open = context_.open();
  options.deadline = deadline_;
  options.request.set_request_id(arguments_.request_id);
  options.request.set_quiet(!arguments_.progress);
  *options.request.mutable_spec() = SpecToProto(spec_);
  *options.request.mutable_execution() = ExecutionToProto(arguments_.execution);
  options.spec = spec_;
  options.inputs = std::move(inputs);
  options.outputs = Outputs();
  const std::shared_ptr<JobSession> session = JobSession::Start(std::move(options), this);
  return [session] { session->Cancel(); };
}

std::function<void()> AttendCall::StartGateway(InputMemory inputs) {
  GatewayOptions options;
  options.channel = context_.channel(context_.address);
  options.metadata = context_.metadata;
  options.deadline = deadline_;
  options.calls = context_.attend_many;
  options.start.set_request_id(arguments_.request_id);
  *options.start.mutable_spec() = SpecToProto(spec_);
  *options.start.mutable_execution() = ExecutionToProto(arguments_.execution);
  options.spec = spec_;
  options.inputs = std::move(inputs);
  options.outputs = Outputs();
  const std::shared_ptr<GatewaySession> session = GatewaySession::Start(std::move(options), this);
  return [session] { session->Cancel(); };
}

void AttendCall::Cancel() {
  std::function<void()> cancel;
  bool waiting = false;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    cancel = cancel_session_;
    waiting = std::exchange(wait_, 0) != 0;
  }
  if (cancel) cancel();
  if (waiting) Deliver(CancelledByCaller());
}

void AttendCall::OnPlaced(const std::string& job_id, const v1::Plan& plan) {
  result_.plan = plan;
  job_id_ = job_id;
  if (arguments_.placed) arguments_.placed(job_id, plan);
}

void AttendCall::OnProgress(const JobProgress& progress) {
  if (arguments_.progress) arguments_.progress(progress);
}

void AttendCall::OnUnconfirmed(const absl::Status& why, bool all_reported) {
  if (absl::IsUnavailable(why)) context_.forget_path();
  if (spec_.keeps_state()) {
    unconfirmed_ = why;
    return;
  }
  result_.release_unconfirmed = ErrorText(why);
  result_.stats_partial = !all_reported;
}

void AttendCall::OnDone(const absl::Status& status, const v1::JobStats& stats) {
  const std::shared_ptr<AttendCall> self = std::move(self_);
  result_.stats = stats;
  std::function<void()> ended;  // Holds the session; destroyed without the lock.
  {
    MutexLock lock(&mutex_);
    session_ = 0;
    ended = std::move(cancel_session_);
    cancel_session_ = nullptr;
  }
  const absl::Status& error = unconfirmed_.ok() ? status : unconfirmed_;
  if (!job_id_.empty() && KeptStateIsUnknown(spec_, error)) return Settle(error);
  GoOn(status);
}

void AttendCall::Settle(absl::Status error) {
  const bool rows_are_here = !unconfirmed_.ok();
  const auto settled = [self = shared_from_this(), error](std::optional<v1::Job> used) {
    {
      MutexLock lock(&self->mutex_);
      self->cancel_session_ = nullptr;
    }
    if (!used.has_value()) return self->GoOn(error);
    if (used->has_stats()) self->result_.stats = used->stats();
    self->Deliver(absl::OkStatus());
  };
  const auto call = std::make_shared<StateHandoffCall>(context_.channel(context_.address),
                                                       context_.metadata, job_id_, rows_are_here);
  {
    MutexLock lock(&mutex_);
    if (!cancelled_) cancel_session_ = [call] { call->Cancel(); };
  }
  call->Start(std::min(StateHandoffCall::kTimeLimit, deadline_ - SteadyNow()), settled);
}

void AttendCall::GoOn(const absl::Status& status) {
  if (!status.ok() && IsCancelled()) return Deliver(CancelledByCaller());
  if (status.code() == absl::StatusCode::kUnavailable) {
    context_.forget_path();
    lost_ = status;
  }
  const std::optional<absl::Duration> delay =
      GiveUpState(status) ? absl::ZeroDuration() : retry_.Next(status, SteadyNow(), deadline_);
  if (!delay.has_value()) {
    return Deliver(MayHaveReleased(spec_, lost_, status) ? AnswerLostError(status, lost_)
                                                         : AfterAttempts(status, earlier_));
  }
  earlier_.push_back(status);
  const int wait = BeginWait();
  if (wait == 0) return;
  context_.callbacks->PostAfter(*delay, [self = shared_from_this(), wait] {
    if (self->EndWait(wait)) self->ChoosePath();
  });
}

bool AttendCall::IsCancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

void AttendCall::Deliver(absl::Status status) {
  result_status_ = std::move(status);
  inputs_lease_.reset();
}

}  // namespace annulus
