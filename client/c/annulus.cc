#include "client/c/annulus.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "annulus/client/v1/client.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/version.h"
#include "client/cli/files/spec_json.h"
#include "client/client.h"
#include "google/protobuf/util/json_util.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

namespace c = client::v1;

// The eventfd of a client, which its calls signal also after the client is freed.
class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventFd() {
    if (fd_ >= 0) close(fd_);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int get() const { return fd_; }
  void Signal() const {
    const uint64_t one = 1;
    // A full counter is readable already.
    static_cast<void>(!write(fd_, &one, sizeof(one)));
  }

 private:
  const int fd_;
};

std::string JsonOf(const google::protobuf::Message& message) {
  std::string json;
  // Messages of ours have no type that JSON lacks.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &json));
  return json;
}

c::CallOutcome OutcomeOf(const absl::Status& error) {
  c::CallOutcome outcome;
  *outcome.mutable_error() = ErrorToProto(error);
  return outcome;
}

c::DataPath PathToProto(DataPath path) {
  switch (path) {
    case DataPath::kAuto:
      return c::DATA_PATH_AUTO;
    case DataPath::kDirect:
      return c::DATA_PATH_DIRECT;
    case DataPath::kGateway:
      return c::DATA_PATH_GATEWAY;
  }
  return c::DATA_PATH_UNSPECIFIED;
}

c::CallOutcome OutcomeOf(const absl::StatusOr<AttendResult>& ended) {
  if (!ended.ok()) return OutcomeOf(ended.status());
  c::CallOutcome outcome;
  c::CallResult& result = *outcome.mutable_result();
  *result.mutable_stats() = ended->stats;
  *result.mutable_plan() = ended->plan;
  result.set_path(PathToProto(ended->path));
  result.set_attempts(ended->attempts);
  result.set_state_gone(ended->state_gone);
  result.set_release_unconfirmed(ended->release_unconfirmed);
  result.set_stats_partial(ended->stats_partial);
  return outcome;
}

// A copy that annulus_string_free frees; null without memory.
char* Copied(const std::string& text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

absl::StatusOr<DataPath> PathFromProto(c::DataPath path) {
  switch (path) {
    case c::DATA_PATH_UNSPECIFIED:
    case c::DATA_PATH_AUTO:
      return DataPath::kAuto;
    case c::DATA_PATH_DIRECT:
      return DataPath::kDirect;
    case c::DATA_PATH_GATEWAY:
      return DataPath::kGateway;
    default:
      return InvalidField("UNKNOWN_ENUM", "path", "is not a known value");
  }
}

absl::StatusOr<ClientOptions> OptionsFrom(const char* json) {
  ClientOptions options;
  if (json == nullptr) return options;
  c::ClientOptions proto;
  RETURN_IF_ERROR(ParseRequest(json, &proto));
  if (!proto.address().empty()) options.address = proto.address();
  if (proto.has_default_timeout()) {
    options.default_timeout = DurationFromProto(proto.default_timeout());
  }
  if (proto.has_connect_timeout()) {
    options.connect_timeout = DurationFromProto(proto.connect_timeout());
  }
  if (proto.has_reachability_age()) {
    options.reachability_age = DurationFromProto(proto.reachability_age());
  }
  for (const c::MetadataEntry& entry : proto.metadata()) {
    options.metadata.emplace(entry.key(), entry.value());
  }
  return options;
}

absl::Status TakeTensors(const annulus_tensor* tensors, size_t count, AttendArguments* job) {
  for (size_t i = 0; i < count; ++i) {
    const annulus_tensor& tensor = tensors[i];
    const std::string path = absl::StrCat("tensors[", i, "]");
    if (tensor.id < 1 || tensor.id > static_cast<int32_t>(kLastTensor)) {
      return InvalidField("UNKNOWN_TENSOR", path + ".id", absl::StrCat(tensor.id, " is no tensor"));
    }
    if ((tensor.flags & ~ANNULUS_OUTPUT) != 0) {
      return InvalidField("BAD_REQUEST", path + ".flags", "has an unknown flag");
    }
    if (tensor.bytes < 0 || (tensor.data == nullptr && tensor.bytes > 0)) {
      return InvalidField("TENSOR_BYTES_MISMATCH", path + ".bytes",
                          absl::StrCat(tensor.bytes, " bytes without memory"));
    }
    const auto id = static_cast<TensorId>(tensor.id);
    auto* const data = static_cast<std::byte*>(tensor.data);
    const auto bytes = static_cast<size_t>(tensor.bytes);
    const bool added =
        (tensor.flags & ANNULUS_OUTPUT) != 0
            ? job->outputs.emplace(id, absl::Span<std::byte>(data, bytes)).second
            : job->inputs.emplace(id, absl::Span<const std::byte>(data, bytes)).second;
    if (!added) {
      return InvalidField("UNKNOWN_TENSOR", path + ".id",
                          absl::StrCat(TensorName(id), " is given twice"));
    }
    if (tensor.strides != nullptr) {
      const annulus_strides& of = *tensor.strides;
      job->strides[id] = {of.tokens, of.sequence, of.token, of.head, of.element};
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<AttendArguments> ArgumentsFrom(const char* json, const annulus_tensor* tensors,
                                              size_t count) {
  c::CallRequest request;
  RETURN_IF_ERROR(ParseRequest(json == nullptr ? "{}" : json, &request));
  AttendArguments job;
  ASSIGN_OR_RETURN(job.spec, SpecFromProto(request.spec(), "spec"));
  ASSIGN_OR_RETURN(job.execution, ExecutionFromProto(request.execution(), "execution"));
  ASSIGN_OR_RETURN(job.path, PathFromProto(request.path()));
  if (request.has_timeout()) {
    job.timeout = DurationFromProto(request.timeout());
    if (job.timeout <= absl::ZeroDuration()) {
      return InvalidField("BAD_REQUEST", "timeout", "must be above 0");
    }
  }
  if (request.max_attempts() != 0) job.max_attempts = request.max_attempts();
  job.request_id = request.request_id();
  job.upload_without_state = request.upload_without_state();
  RETURN_IF_ERROR(TakeTensors(tensors, count, &job));
  return job;
}

// State of a call that its job's callbacks share. Thread-safe.
class CallState {
 public:
  explicit CallState(std::shared_ptr<EventFd> event) : event_(std::move(event)) {}

  void End(absl::StatusOr<AttendResult> ended) EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      ended_ = std::move(ended);
      changed_.SignalAll();
    }
    event_->Signal();
  }
  void Progress(const JobProgress& progress) EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      progress_ = progress;
    }
    event_->Signal();
  }
  bool Wait(absl::Duration limit) EXCLUDES(mutex_) {
    const absl::Time deadline = SteadyNow() + limit;
    MutexLock lock(&mutex_);
    while (!ended_.has_value() && changed_.WaitFor(&mutex_, deadline - SteadyNow())) {
    }
    return ended_.has_value();
  }
  std::optional<JobProgress> progress() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return progress_;
  }
  // Null while the job runs. The text is made once, by the first caller, and stays.
  const std::string* json() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (!ended_.has_value()) return nullptr;
    if (json_.empty()) json_ = JsonOf(OutcomeOf(*ended_));
    return &json_;
  }

 private:
  const std::shared_ptr<EventFd> event_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<AttendResult>> ended_ GUARDED_BY(mutex_);
  std::optional<JobProgress> progress_ GUARDED_BY(mutex_);
  std::string json_ GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace annulus

struct annulus_client {
  explicit annulus_client(annulus::ClientOptions options) : client(std::move(options)) {}

  // A child of fork() shares the sockets of its parent, so its calls would take the parent's
  // answers. It has none of the parent's threads, so a wait for one would never end.
  bool forked() const { return getpid() != process; }

  const pid_t process = getpid();
  const std::shared_ptr<annulus::EventFd> event = std::make_shared<annulus::EventFd>();
  annulus::Client client;
};

struct annulus_call {
  explicit annulus_call(std::shared_ptr<annulus::EventFd> event)
      : state(std::make_shared<annulus::CallState>(std::move(event))) {}
  bool forked() const { return getpid() != process; }

  const pid_t process = getpid();
  const std::shared_ptr<annulus::CallState> state;
  std::shared_ptr<annulus::AttendCallHandle> handle;  // Null if the job was not started.
};

namespace annulus {
namespace {

absl::Status ForkedError() {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   "the client was made before fork(); make one in the child",
                   {"FORKED", {}, {}, {}});
}

// Runs `body`; what it throws (only for want of memory) becomes `otherwise`.
template <typename Result, typename Body>
Result Guarded(Result otherwise, Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}

template <typename Request, typename Answer>
absl::StatusOr<std::string> Ask(const char* json, Answer answer) {
  Request request;
  RETURN_IF_ERROR(ParseRequest(json == nullptr ? "{}" : json, &request));
  ASSIGN_OR_RETURN(const auto response, answer(request));
  return JsonOf(response);
}

absl::StatusOr<std::string> Unary(annulus_client* client, absl::string_view method,
                                  const char* json, absl::Duration limit) {
  Client& of = client->client;
  if (method == "GetServerInfo") {
    return Ask<v1::GetServerInfoRequest>(json,
                                         [&](const auto&) { return of.GetServerInfo(limit); });
  }
  if (method == "PlanJob") {
    return Ask<v1::PlanJobRequest>(json, [&](const auto& request) -> absl::StatusOr<v1::Plan> {
      ASSIGN_OR_RETURN(const AttentionSpec spec, SpecFromProto(request.spec(), "spec"));
      ASSIGN_OR_RETURN(const Execution execution,
                       ExecutionFromProto(request.execution(), "execution"));
      return of.Plan(spec, execution, limit);
    });
  }
  if (method == "GetJob") {
    return Ask<v1::GetJobRequest>(
        json, [&](const auto& request) { return of.GetJob(request.job_id(), limit); });
  }
  if (method == "CancelJob") {
    return Ask<v1::CancelJobRequest>(
        json, [&](const auto& request) { return of.CancelJob(request.job_id(), limit); });
  }
  if (method == "ReleaseState") {
    return Ask<v1::ReleaseStateRequest>(
        json, [&](const auto& request) { return of.ReleaseState(request.job_id(), limit); });
  }
  if (method == "ListJobs") {
    return Ask<v1::ListJobsRequest>(
        json, [&](const auto& request) { return of.ListJobs(request, limit); });
  }
  return InvalidField("BAD_REQUEST", "method", absl::StrCat(method, " is no method"));
}

}  // namespace
}  // namespace annulus

using annulus::Guarded;

const char* annulus_version(void) { return annulus::kVersion; }

annulus_client* annulus_client_new(const char* options_json, char** error_json) {
  return Guarded<annulus_client*>(nullptr, [&]() -> annulus_client* {
    absl::StatusOr<annulus::ClientOptions> options = annulus::OptionsFrom(options_json);
    if (options.ok()) return new annulus_client(*std::move(options));
    if (error_json != nullptr) {
      *error_json = annulus::Copied(annulus::JsonOf(annulus::OutcomeOf(options.status())));
    }
    return nullptr;
  });
}

void annulus_client_free(annulus_client* client) {
  if (client != nullptr && !client->forked()) delete client;
}

int annulus_client_event_fd(const annulus_client* client) { return client->event->get(); }

annulus_call* annulus_attend(annulus_client* client, const char* request_json,
                             const annulus_tensor* tensors, size_t count) {
  return Guarded<annulus_call*>(nullptr, [&] {
    auto call = std::make_unique<annulus_call>(client->event);
    absl::StatusOr<annulus::AttendArguments> job =
        client->forked() ? annulus::ForkedError()
                         : annulus::ArgumentsFrom(request_json, tensors, count);
    if (!job.ok()) {
      call->state->End(job.status());
      return call.release();
    }
    job->progress = [state = call->state](const annulus::JobProgress& progress) {
      state->Progress(progress);
    };
    call->handle = client->client.AttendAsync(
        *std::move(job), [state = call->state](absl::StatusOr<annulus::AttendResult> ended) {
          state->End(std::move(ended));
        });
    return call.release();
  });
}

int annulus_call_wait(annulus_call* call, double seconds) {
  if (call->forked()) return call->state->json() != nullptr ? 1 : 0;
  return call->state->Wait(seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds)) ? 1 : 0;
}

void annulus_call_cancel(annulus_call* call) {
  if (call->handle != nullptr && !call->forked()) call->handle->Cancel();
}

const char* annulus_call_result(annulus_call* call, size_t* bytes) {
  return Guarded<const char*>(nullptr, [&]() -> const char* {
    const std::string* const json = call->state->json();
    if (json == nullptr) return nullptr;
    if (bytes != nullptr) *bytes = json->size();
    return json->c_str();
  });
}

int annulus_call_progress(annulus_call* call, annulus_progress* progress) {
  const std::optional<annulus::JobProgress> latest = call->state->progress();
  if (!latest.has_value()) return 0;
  *progress = {static_cast<int32_t>(latest->state),
               latest->attempt,
               latest->segments_done,
               latest->segments,
               latest->bytes_sent,
               latest->bytes_to_send,
               latest->bytes_received,
               latest->bytes_to_receive};
  return 1;
}

void annulus_call_free(annulus_call* call) {
  if (call == nullptr || (call->forked() && call->handle != nullptr)) return;
  annulus_call_cancel(call);
  annulus_call_wait(call, -1);
  delete call;
}

char* annulus_unary(annulus_client* client, const char* method, const char* request_json,
                    double seconds) {
  return Guarded<char*>(nullptr, [&] {
    const absl::Duration limit = seconds > 0 ? absl::Seconds(seconds) : absl::ZeroDuration();
    const absl::StatusOr<std::string> answer =
        client->forked()
            ? annulus::ForkedError()
            : annulus::Unary(client, method == nullptr ? "" : method, request_json, limit);
    if (answer.ok()) return annulus::Copied(absl::StrCat("{\"result\":", *answer, "}"));
    return annulus::Copied(annulus::JsonOf(annulus::OutcomeOf(answer.status())));
  });
}

void annulus_string_free(char* string) { std::free(string); }
