#include "client/client.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "annulus/v1/attention.grpc.pb.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "client/attend_call.h"
#include "client/reachability.h"
#include "client/session/retry.h"
#include "client/transport/callback_thread.h"
#include "client/transport/channels.h"
#include "client/transport/stream_pool.h"
#include "grpcpp/client_context.h"
#include "proto/rpc/grpc_time.h"
#include "proto/wire/convert.h"
#include "proto/wire/status.h"

namespace annulus {
namespace {

constexpr absl::Duration kUnaryTimeout = absl::Seconds(10);
// Time in which the coordinator should notice that the last outputs have been fetched.
constexpr absl::Duration kFarewell = absl::Seconds(1);

// Counts open calls, including those whose outputs are already here.
class OpenCalls {
 public:
  static std::shared_ptr<const void> Open(const std::shared_ptr<OpenCalls>& calls) {
    MutexLock lock(&calls->mutex_);
    ++calls->open_;
    return std::shared_ptr<const void>(nullptr, [calls](const void*) { calls->Close(); });
  }
  void WaitUntilClosed(absl::Duration timeout) EXCLUDES(mutex_) {
    const absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(&mutex_);
    while (open_ > 0 && changed_.WaitFor(&mutex_, deadline - SteadyNow())) {
    }
  }

 private:
  void Close() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (--open_ == 0) changed_.SignalAll();
  }

  Mutex mutex_;
  CondVar changed_;
  int open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

class Client::Impl : public std::enable_shared_from_this<Client::Impl> {
 public:
  explicit Impl(ClientOptions options)
      : options_(std::move(options)),
        channels_(options_.credentials != nullptr ? options_.credentials
                                                  : grpc::InsecureChannelCredentials()),
        reachability_([this] { return WorkersAreReachable(); }, options_.reachability_age) {}

  // `wakes`: see AttendContext.
  std::shared_ptr<AttendCall> Attend(AttendArguments arguments, bool wakes, AttendCall::Done done)
      EXCLUDES(mutex_);
  void CancelAllAndWait() EXCLUDES(mutex_);

  template <typename Service, typename Response, typename Request>
  absl::StatusOr<Response> Unary(grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                                 const Request& request, absl::Duration timeout) {
    grpc::ClientContext context;
    const absl::Duration limit = timeout == absl::ZeroDuration() ? kUnaryTimeout : timeout;
    context.set_deadline(absl::ToChronoTime(TimeOfDayNow() + limit));
    for (const auto& [key, value] : options_.metadata) context.AddMetadata(key, value);
    typename Service::Stub stub(channels_.Get(options_.address));
    Response response;
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }
  // Unary() with retries, at most as many as for a job.
  template <typename Service, typename Response, typename Request>
  absl::StatusOr<Response> UnaryAgain(grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                            const Request&,
                                                                            Response*),
                                      const Request& request, absl::Duration timeout) {
    const absl::Duration limit = timeout == absl::ZeroDuration() ? kUnaryTimeout : timeout;
    const auto sleep = [](absl::Duration time) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(time));
    };
    const auto call = [&](absl::Duration left) { return Unary<Service>(method, request, left); };
    return CallWithRetries<Response>(RetryPolicy(AttendArguments().max_attempts, RandomFraction),
                                     SteadyNow() + limit, SteadyNow, sleep, call);
  }

 private:
  bool WorkersAreReachable();
  StreamPool::Options PoolOptions(std::string method, size_t max_idle) const {
    StreamPool::Options pool;
    pool.method = std::move(method);
    pool.open = [calls = open_calls_] { return OpenCalls::Open(calls); };
    pool.metadata = options_.metadata;
    pool.max_idle = max_idle;
    return pool;
  }

  const ClientOptions options_;
  Channels channels_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::weak_ptr<AttendCall>> calls_ GUARDED_BY(mutex_);
  int live_ GUARDED_BY(mutex_) = 0;
  const std::shared_ptr<OpenCalls> open_calls_ = std::make_shared<OpenCalls>();
  const std::shared_ptr<StreamPool> exchanges_ =
      std::make_shared<StreamPool>(PoolOptions("/annulus.v1.DataPlane/ExchangeShards", 64));
  // The limit on idle calls leaves most calls of a connection (the coordinator's --max-streams) to
  // others.
  const std::shared_ptr<AttendManyCalls> attend_many_ =
      std::make_shared<AttendManyCalls>(PoolOptions("/annulus.v1.Attention/AttendMany", 16));
  // Last: their threads must end before the other members are destroyed.
  CallbackThread callbacks_;
  Reachability reachability_;
};

std::shared_ptr<AttendCall> Client::Impl::Attend(AttendArguments arguments, bool wakes,
                                                 AttendCall::Done done) {
  const absl::Duration timeout =
      arguments.timeout == absl::ZeroDuration() ? options_.default_timeout : arguments.timeout;
  AttendContext context;
  context.callbacks = &callbacks_;
  context.wakes = wakes;
  context.choose_path = [this](const auto& later) -> std::optional<DataPath> {
    const auto path = [](bool direct) { return direct ? DataPath::kDirect : DataPath::kGateway; };
    const std::optional<bool> direct =
        reachability_.Ask([later, path](bool found) { later(path(found)); });
    if (!direct.has_value()) return std::nullopt;
    return path(*direct);
  };
  context.forget_path = [this] { reachability_.Forget(); };
  context.channel = [this](const std::string& address) { return channels_.Get(address); };
  context.exchanges = exchanges_;
  context.attend_many = attend_many_;
  context.open = [calls = open_calls_] { return OpenCalls::Open(calls); };
  context.address = options_.address;
  context.metadata = options_.metadata;
  const auto finish = [this, done = std::move(done)](absl::StatusOr<AttendResult> result) {
    done(std::move(result));
    MutexLock lock(&mutex_);
    --live_;
    changed_.SignalAll();
  };
  auto call = std::make_shared<AttendCall>(std::move(context), std::move(arguments),
                                           SteadyNow() + timeout, finish);
  {
    MutexLock lock(&mutex_);
    ++live_;
    calls_.erase(
        std::remove_if(calls_.begin(), calls_.end(), [](const auto& old) { return old.expired(); }),
        calls_.end());
    calls_.push_back(call);
  }
  call->Start();
  return call;
}

void Client::Impl::CancelAllAndWait() {
  std::vector<std::weak_ptr<AttendCall>> calls;
  {
    MutexLock lock(&mutex_);
    calls = calls_;
  }
  for (const auto& weak : calls) {
    if (const std::shared_ptr<AttendCall> call = weak.lock()) call->Cancel();
  }
  {
    MutexLock lock(&mutex_);
    while (live_ > 0) changed_.Wait(&mutex_);
  }
  exchanges_->CancelIdle();
  attend_many_->pool()->CancelIdle();
  open_calls_->WaitUntilClosed(kFarewell);
}

bool Client::Impl::WorkersAreReachable() {
  const absl::Duration patience = options_.connect_timeout;
  if (patience <= absl::ZeroDuration()) return false;
  const absl::StatusOr<v1::ServerInfo> info = Unary<v1::Attention>(
      &v1::Attention::Stub::GetServerInfo, v1::GetServerInfoRequest(), patience);
  if (!info.ok()) return false;
  std::vector<std::string> endpoints;
  for (const v1::WorkerInfo& worker : info->workers()) {
    if (worker.state() != v1::WorkerInfo::STATE_READY) continue;
    endpoints.push_back(worker.data_endpoint());
  }
  return !endpoints.empty() && channels_.Connect(endpoints, TimeOfDayNow() + patience);
}

Client::Client(ClientOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

Client::~Client() { impl_->CancelAllAndWait(); }

std::shared_ptr<Client::Call> Client::AttendAsync(
    AttendArguments arguments, std::function<void(absl::StatusOr<AttendResult>)> done) {
  return impl_->Attend(std::move(arguments), /*wakes=*/false, std::move(done));
}

absl::StatusOr<AttendResult> Client::Attend(AttendArguments arguments) {
  struct Waiter {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::StatusOr<AttendResult>> result;
  } waiter;
  impl_->Attend(std::move(arguments), /*wakes=*/true,
                [&waiter](absl::StatusOr<AttendResult> result) {
                  MutexLock lock(&waiter.mutex);
                  waiter.result = std::move(result);
                  waiter.changed.SignalAll();
                });
  MutexLock lock(&waiter.mutex);
  while (!waiter.result.has_value()) waiter.changed.Wait(&waiter.mutex);
  return *std::move(waiter.result);
}

absl::StatusOr<AttendResult> Client::Gradients(AttendArguments arguments) {
  arguments.spec.operation = Operation::kGradients;
  return Attend(std::move(arguments));
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& job_id, absl::Duration timeout) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return impl_->Unary<v1::Jobs>(&v1::Jobs::Stub::GetJob, request, timeout);
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& job_id, absl::Duration timeout) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  return impl_->UnaryAgain<v1::Jobs>(&v1::Jobs::Stub::CancelJob, request, timeout);
}

absl::StatusOr<v1::Job> Client::ReleaseState(const std::string& job_id, absl::Duration timeout) {
  v1::ReleaseStateRequest request;
  request.set_job_id(job_id);
  return impl_->UnaryAgain<v1::Jobs>(&v1::Jobs::Stub::ReleaseState, request, timeout);
}

absl::StatusOr<v1::Plan> Client::Plan(const AttentionSpec& spec, const Execution& execution,
                                      absl::Duration timeout) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = SpecToProto(spec);
  *request.mutable_execution() = ExecutionToProto(execution);
  return impl_->Unary<v1::Jobs>(&v1::Jobs::Stub::PlanJob, request, timeout);
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo(absl::Duration timeout) {
  return impl_->Unary<v1::Attention>(&v1::Attention::Stub::GetServerInfo,
                                     v1::GetServerInfoRequest(), timeout);
}

absl::StatusOr<v1::Partial> Client::MergePartials(const v1::MergePartialsRequest& request,
                                                  absl::Duration timeout) {
  return impl_->UnaryAgain<v1::Attention>(&v1::Attention::Stub::MergePartials, request, timeout);
}

absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request,
                                                      absl::Duration timeout) {
  return impl_->Unary<v1::Jobs>(&v1::Jobs::Stub::ListJobs, request, timeout);
}

}  // namespace annulus
