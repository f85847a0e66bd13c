#include "worker/agent/control_link.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/rpc/callback_threads.h"
#include "proto/rpc/keepalive.h"
#include "proto/rpc/message_limits.h"
#include "proto/wire/status.h"

namespace annulus {

using grpc::health::v1::Health;

struct ConnectProbe::Question {
  grpc::ClientContext context;
  std::unique_ptr<Health::Stub> stub;
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
};

ConnectProbe::ConnectProbe(std::shared_ptr<grpc::Channel> channel, std::string address)
    : channel_(std::move(channel)), address_(std::move(address)) {}

ConnectProbe::~ConnectProbe() {
  if (question_ != nullptr) question_->context.TryCancel();
}

void ConnectProbe::Ask(LogLevel level) {
  if (question_ != nullptr) question_->context.TryCancel();
  question_ = std::make_shared<Question>();
  question_->stub = Health::NewStub(channel_);
  question_->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  question_->stub->async()->Check(
      &question_->context, &question_->request, &question_->response,
      [question = question_, address = address_, level](const grpc::Status& status) {
        // Any other status shows that a connection was made.
        if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
            status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
          return;
        }
        LogAt(level, kNoJob, "cannot reach the coordinator at ", address, ": ",
              status.error_message(), "; trying again");
      });
}

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const ControlLink::Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // The environment's proxy is for the web.
  arguments.SetMaxReceiveMessageSize(kMaxCoordinatorAnswerBytes);
  // Short, so that a restarted coordinator is found again within a lease.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  for (const auto& [name, value] : Keepalive(options.keepalive_time, options.keepalive_timeout))
    arguments.SetInt(name, value);
  return grpc::CreateCustomChannel(options.coordinator, options.credentials, arguments);
}

// Adds an explanation, since gRPC gives only the code.
absl::Status Explained(const absl::Status& status) {
  if (!absl::IsUnimplemented(status) || !status.message().empty()) return status;
  return absl::UnimplementedError(
      "this address does not serve workers: use the coordinator's --control-address, not its "
      "--address");
}

}  // namespace

// One call. gRPC owns it, through self_, until OnDone.
class ControlLink::Stream final : public grpc::ClientBidiReactor<WorkerEvent, WorkerCommand> {
 public:
  Stream(std::shared_ptr<const Options> options, int64_t number)
      : options_(std::move(options)), number_(number) {}

  void Open(control::v1::WorkerControl::Stub* stub, std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    context_.set_wait_for_ready(true);
    stub->async()->Connect(&context_, this);
    AddHold();  // Other threads start writes.
    StartRead(&command_);
    StartCall();
  }

  void Send(const WorkerEvent& event) {
    MutexLock lock(&mutex_);
    if (released_ || closing_) return;
    outbox_.push_back(event);
    if (outbox_.size() > options_->max_outbox) return context_.TryCancel();
    if (!writing_) WriteLocked();
  }
  void Cancel() {
    context_.TryCancel();
    MutexLock lock(&mutex_);
    ReleaseLocked();
  }
  void Close() {
    MutexLock lock(&mutex_);
    closing_ = true;
    if (!writing_ && !released_) StartWritesDone();
  }
  bool WaitDone(absl::Duration timeout) {
    const absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(&mutex_);
    while (!done_) {
      if (!done_changed_.WaitFor(&mutex_, deadline - SteadyNow())) return done_;
    }
    return true;
  }
  // True if the coordinator ended the stream with the reason that it shuts down.
  bool WasAnnounced() {
    MutexLock lock(&mutex_);
    return announced_;
  }
  // Waits for a running callback; none runs afterwards.
  void Mute() {
    MutexLock lock(&callback_mutex_);
    muted_ = true;
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      {
        MutexLock lock(&callback_mutex_);
        if (!muted_) options_->on_command(number_, std::move(command_));
      }
      command_.Clear();
      return StartRead(&command_);
    }
    MutexLock lock(&mutex_);
    ReleaseLocked();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    outbox_.pop_front();
    if (!ok) return ReleaseLocked();
    if (released_) return;
    if (!outbox_.empty()) return WriteLocked();
    if (closing_) StartWritesDone();
  }
  void OnDone(const grpc::Status& status) override {
    const absl::Status end = FromGrpcStatus(status);
    {
      MutexLock lock(&mutex_);
      announced_ = DetailOf(end).reason == "DRAINING";
    }
    {
      MutexLock lock(&callback_mutex_);
      if (!muted_) options_->on_closed(number_, Explained(end));
    }
    const std::shared_ptr<Stream> self = std::move(self_);
    MutexLock lock(&mutex_);
    done_ = true;
    done_changed_.SignalAll();
  }

 private:
  void WriteLocked() REQUIRES(mutex_) {
    writing_ = true;
    StartWrite(&outbox_.front());
  }
  void ReleaseLocked() REQUIRES(mutex_) {
    if (std::exchange(released_, true)) return;
    RemoveHold();
  }

  const std::shared_ptr<const Options> options_;
  const int64_t number_;
  grpc::ClientContext context_;
  WorkerCommand command_;
  std::shared_ptr<Stream> self_;
  Mutex callback_mutex_;  // Lock order: before mutex_.
  bool muted_ GUARDED_BY(callback_mutex_) = false;
  Mutex mutex_;
  CondVar done_changed_;
  std::deque<WorkerEvent> outbox_ GUARDED_BY(mutex_);  // The first event is being written.
  bool writing_ GUARDED_BY(mutex_) = false;
  bool closing_ GUARDED_BY(mutex_) = false;
  // True once the hold is removed. No writes afterwards.
  bool released_ GUARDED_BY(mutex_) = false;
  bool announced_ GUARDED_BY(mutex_) = false;
  bool done_ GUARDED_BY(mutex_) = false;
};

ControlLink::ControlLink(Options options)
    : options_(std::make_shared<const Options>(std::move(options))) {
  KeepCallbackThreads();
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(*options_);
  probe_ = std::make_unique<ConnectProbe>(channel, options_->coordinator);
  stub_ = control::v1::WorkerControl::NewStub(channel);
}

ControlLink::~ControlLink() {
  Drop();
  for (const std::shared_ptr<Stream>& stream : dropped_) stream->WaitDone(options_->patience);
  for (const std::shared_ptr<Stream>& stream : dropped_) stream->Mute();
}

void ControlLink::Connect(int64_t number) {
  // After an announced shutdown, the first failure to connect is expected.
  const bool expected = stream_ != nullptr && stream_->WasAnnounced();
  Drop();
  stream_ = std::make_shared<Stream>(options_, number);
  stream_->Open(stub_.get(), stream_);
  probe_->Ask(expected ? LogLevel::kInfo : LogLevel::kWarning);
}

void ControlLink::Send(const WorkerEvent& event) {
  if (stream_ != nullptr) stream_->Send(event);
}

void ControlLink::Drop() {
  if (stream_ == nullptr) return;
  stream_->Cancel();
  dropped_.erase(
      std::remove_if(dropped_.begin(), dropped_.end(),
                     [](const auto& stream) { return stream->WaitDone(absl::ZeroDuration()); }),
      dropped_.end());
  dropped_.push_back(std::move(stream_));
}

void ControlLink::Close(absl::Duration timeout) {
  if (stream_ == nullptr) return;
  stream_->Close();
  stream_->WaitDone(timeout);
  Drop();
}

}  // namespace annulus
