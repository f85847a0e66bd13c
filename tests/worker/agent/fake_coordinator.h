#ifndef ANNULUS_TESTS_WORKER_AGENT_FAKE_COORDINATOR_H_
#define ANNULUS_TESTS_WORKER_AGENT_FAKE_COORDINATOR_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "annulus/control/v1/control.grpc.pb.h"
#include "base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "tests/worker/agent/event_log.h"

namespace annulus {

// A scripted coordinator for one worker: sends Welcome, answers beats, records events and sends a
// test's commands.
class FakeCoordinator final : public control::v1::WorkerControl::Service {
 public:
  using Command = control::v1::WorkerCommand;
  using Event = control::v1::WorkerEvent;

  FakeCoordinator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override {
    Break();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Beats are answered, and streams accepted, while it is true.
  std::atomic<bool> answers{true};
  // The lease in Welcome. Long, so that a stalled machine does not end it.
  std::atomic<int64_t> lease_seconds{60};
  EventLog log;

  // Sends the next command of the term.
  void Order(Command command) {
    MutexLock lock(&mutex_);
    command.set_term(kTerm);
    command.set_id(++last_id_);
    command.set_ack(received_);
    if (stream_ != nullptr) stream_->Write(command);
  }
  // Ends the stream as a network failure would.
  void Break() {
    MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  // Restarts the ids, for a worker with a new incarnation.
  void StartNumbersAgain() {
    MutexLock lock(&mutex_);
    last_id_ = 0;
    received_ = 0;
  }

  grpc::Status Connect(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<Command, Event>* stream) override {
    if (!answers) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now");
    Event event;
    while (stream->Read(&event)) Take(context, stream, event);
    MutexLock lock(&mutex_);
    if (stream_ == stream) {  // A reconnected worker may arrive before its last stream has ended.
      stream_ = nullptr;
      context_ = nullptr;
    }
    return grpc::Status::OK;
  }

 private:
  static constexpr int64_t kTerm = 5;

  void Take(grpc::ServerContext* context, grpc::ServerReaderWriter<Command, Event>* stream,
            const Event& event) {
    MutexLock lock(&mutex_);
    Command answer;
    answer.set_term(kTerm);
    if (event.has_register_()) {
      stream_ = stream;
      context_ = context;
      answer.mutable_welcome()->mutable_lease()->set_seconds(lease_seconds);
      answer.mutable_welcome()->mutable_beat_interval()->set_nanos(100000000);
    } else if (event.has_beat() && answers) {
      answer.mutable_beat_answer()->set_sequence(event.beat().sequence());
    } else if (event.id() > 0) {
      if (event.id() <= received_) return;
      received_ = event.id();
    }
    answer.set_ack(received_);
    if (answer.command_case() != Command::COMMAND_NOT_SET) stream->Write(answer);
    log.Add(event);
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  grpc::ServerReaderWriter<Command, Event>* stream_ GUARDED_BY(mutex_) = nullptr;
  grpc::ServerContext* context_ GUARDED_BY(mutex_) = nullptr;
  int64_t last_id_ GUARDED_BY(mutex_) = 0;
  int64_t received_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_AGENT_FAKE_COORDINATOR_H_
