#include "server/coordinator_server.h"

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "client/transport/channels.h"
#include "client/transport/stream_pool.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/rpc/keepalive.h"
#include "proto/rpc/listen.h"
#include "proto/rpc/message_limits.h"
#include "proto/wire/plain_messages.h"
#include "proto/wire/tensor_transport.h"
#include "server/coordinator/planning/planner.h"
#include "server/gateway/attention_service.h"
#include "server/gateway/local_run_job.h"
#include "server/services/coordinator_loop.h"
#include "server/services/health_service.h"
#include "server/services/jobs_service.h"
#include "server/services/worker_control_service.h"

namespace annulus {
namespace {

constexpr absl::Duration kLivenessAge = absl::Seconds(10);
constexpr std::chrono::seconds kShutdownGrace(2);

std::string WithPort(absl::string_view address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

// Pings detect vanished peers. Clients that ping often are not disconnected.
void SetKeepalive(grpc::ServerBuilder& builder, absl::Duration time, absl::Duration timeout) {
  for (const auto& [name, value] : ServerKeepalive(time, timeout, absl::Seconds(5)))
    builder.AddChannelArgument(name, value);
}

// A port with its services and server.
struct Port {
  std::string address;  // In: requested. Out: bound.
  std::unique_ptr<grpc::Server> server;

  absl::Status Listen(grpc::ServerBuilder& builder,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials,
                      int streams_per_connection) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, streams_per_connection);
    builder.SetMaxReceiveMessageSize(kMaxCoordinatorMessageBytes);
    TakeNothingCompressed(&builder);
    ASSIGN_OR_RETURN(ListeningServer listening, annulus::Listen(&builder, address, credentials));
    server = std::move(listening.server);
    address = WithPort(address, listening.port);
    return absl::OkStatus();
  }
  void Shutdown() {
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  }
};

// A flag that is set once, with a wait that has a deadline.
class Flag {
 public:
  void Set() EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      set_ = true;
    }
    changed_.SignalAll();
  }
  bool Wait(absl::Time deadline) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    while (!set_) {
      if (!changed_.WaitFor(&mutex_, deadline - SteadyNow())) return set_;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ GUARDED_BY(mutex_) = false;
};

// Passes on the answer to GetServerInfo.
class InfoSink final : public CallSink {
 public:
  explicit InfoSink(ServerInfoReply reply) : reply_(std::move(reply)) {}
  void Send(v1::JobEvent) override {}
  void Finish(const absl::Status& status) override { reply_(status); }
  void Answer(absl::StatusOr<Value> value) override {
    if (!value.ok()) return reply_(value.status());
    reply_(std::get<v1::ServerInfo>(*std::move(value)));
  }

 private:
  const ServerInfoReply reply_;
};

void AskInfo(CoordinatorLoop* loop, ServerInfoReply reply) {
  const int64_t call = loop->NewNumber();
  auto sink = std::make_shared<InfoSink>(std::move(reply));
  const absl::Status taken = loop->PostCall(call, sink, event::GetServerInfo{call});
  if (!taken.ok()) sink->Finish(taken);
}

// Job ids must not be guessable.
uint64_t RandomNumber() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

struct CoordinatorServer::Impl {
  explicit Impl(Options o);
  absl::Status StartPorts();
  GatewayServiceOptions Gateway();

  Options options;
  Flag drained;
  // The order of members matters: the loop's callbacks use the health services until it stops, and
  // the other services use the loop.
  HealthService health;
  HealthService health_for_workers;
  HealthService health_for_probes;
  CoordinatorLoop loop;
  JobsService jobs;
  WorkerControlService control;
  std::unique_ptr<AttentionService> attention;
  Port client_port, control_port, health_port;
  bool shut_down = false;
};

namespace {

CoordinatorLoop::Options CoordinatorLoopOptions(const CoordinatorServer::Options& options,
                                                std::function<void(bool)> ready,
                                                std::function<void()> stopped) {
  CoordinatorLoop::Options loop;
  loop.coordinator = options.coordinator;
  loop.plan = MakeJobPlan;
  loop.planner_threads = options.planner_threads;
  loop.max_mail = options.max_mail;
  loop.random = RandomNumber;
  loop.on_ready = std::move(ready);
  loop.on_stopped = std::move(stopped);
  return loop;
}

CoordinatorServer::Options WithCredentials(CoordinatorServer::Options options) {
  if (options.server_credentials == nullptr) {
    options.server_credentials = grpc::InsecureServerCredentials();
  }
  if (options.worker_credentials == nullptr) {
    options.worker_credentials = grpc::InsecureChannelCredentials();
  }
  return options;
}

}  // namespace

CoordinatorServer::Impl::Impl(Options o)
    : options(WithCredentials(std::move(o))),
      health([this] { return loop.FreshWithin(kLivenessAge); }),
      health_for_workers([this] { return loop.FreshWithin(kLivenessAge); }),
      health_for_probes([this] { return loop.FreshWithin(kLivenessAge); }),
      loop(CoordinatorLoopOptions(
          options,
          [this](bool ready) {
            health.SetReady(ready);
            health_for_workers.SetReady(ready);
            health_for_probes.SetReady(ready);
          },
          [this] { drained.Set(); })),
      jobs(&loop, options.coordinator),
      control(&loop, options.register_wait) {}

GatewayServiceOptions CoordinatorServer::Impl::Gateway() {
  GatewayServiceOptions gateway;
  gateway.run_job = LocalRunJob(&loop, options.coordinator);
  auto workers = std::make_shared<Channels>(options.worker_credentials, ReadAhead::kBounded);
  gateway.worker_channel = [workers](const std::string& endpoint) {
    return workers->Get(endpoint);
  };
  // The data of an exchange is bounded by itself, so its windows may be wide. A bounded window
  // costs every answer a round trip.
  auto exchanges = std::make_shared<Channels>(options.worker_credentials, ReadAhead::kAdaptive);
  StreamPool::Options pool;
  pool.channels = [exchanges](const std::string& endpoint) { return exchanges->Get(endpoint); };
  gateway.exchanges = std::make_shared<StreamPool>(std::move(pool));
  gateway.server_info = [this](ServerInfoReply reply) { AskInfo(&loop, std::move(reply)); };
  gateway.limits = options.coordinator.limits;
  gateway.max_timeout = options.coordinator.max_timeout;
  gateway.max_unsent_messages = options.max_unsent_messages;
  gateway.max_attend_calls = options.max_attend_calls;
  gateway.max_inline_bytes = options.max_inline_bytes;
  return gateway;
}

absl::Status CoordinatorServer::Impl::StartPorts() {
  attention = std::make_unique<AttentionService>(Gateway());

  const int streams = options.max_streams_per_connection;
  grpc::ServerBuilder clients;
  SetKeepalive(clients, options.keepalive_time, options.keepalive_timeout);
  for (const auto& [name, value] : TensorTransport(ReadAhead::kBounded))
    clients.AddChannelArgument(name, value);
  clients.RegisterService(attention.get());
  clients.RegisterService(&jobs);
  clients.RegisterService(&health);
  client_port.address = options.address;
  RETURN_IF_ERROR(client_port.Listen(clients, options.server_credentials, streams));

  grpc::ServerBuilder workers;
  SetKeepalive(workers, absl::Seconds(10), absl::Seconds(5));
  workers.RegisterService(&control);
  workers.RegisterService(&health_for_workers);
  control_port.address = options.control_address;
  RETURN_IF_ERROR(control_port.Listen(workers, options.server_credentials, streams));

  if (options.health_address.empty()) return absl::OkStatus();
  grpc::ServerBuilder probes;
  SetKeepalive(probes, options.keepalive_time, options.keepalive_timeout);
  probes.RegisterService(&health_for_probes);
  health_port.address = options.health_address;
  return health_port.Listen(probes, grpc::InsecureServerCredentials(), streams);
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(Options options) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<CoordinatorServer> server(
      new CoordinatorServer(std::make_unique<Impl>(std::move(options))));
  // The destructor shuts down what was started.
  RETURN_IF_ERROR(server->impl_->StartPorts());
  LogInfo(kNoJob, "listening: clients ", server->address(), ", workers ",
          server->control_address());
  return server;
}

CoordinatorServer::~CoordinatorServer() { Shutdown(); }

const std::string& CoordinatorServer::address() const { return impl_->client_port.address; }
const std::string& CoordinatorServer::control_address() const {
  return impl_->control_port.address;
}
const std::string& CoordinatorServer::health_address() const { return impl_->health_port.address; }

void CoordinatorServer::Drain() { impl_->loop.Post(event::Drain{}).IgnoreError(); }

bool CoordinatorServer::WaitUntilDrained(absl::Time deadline) {
  // A job is over when its outputs have been fetched. Its caller may not have them yet.
  return impl_->drained.Wait(deadline) && impl_->attention->WaitUntilIdle(deadline);
}

void CoordinatorServer::Shutdown() {
  Impl& impl = *impl_;
  if (std::exchange(impl.shut_down, true)) return;
  // The coordinator loop ends every call and stream that it has. A server waits for its calls.
  impl.loop.Stop();
  impl.health.Stop();
  impl.health_for_workers.Stop();
  impl.health_for_probes.Stop();
  impl.attention->EndResting();
  impl.client_port.Shutdown();
  impl.control_port.Shutdown();
  impl.health_port.Shutdown();
}

}  // namespace annulus
