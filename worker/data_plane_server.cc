#include "worker/data_plane_server.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/keepalive.h"
#include "proto/plain_messages.h"
#include "proto/tensor_stream.h"
#include "proto/tensor_transport.h"
#include "worker/data_plane/data_plane_service.h"

namespace annulus {
namespace {

constexpr int kMaxStreamsPerConnection = 256;

absl::StatusOr<std::unique_ptr<grpc::Server>> Build(grpc::ServerBuilder* builder,
                                                    const std::string& address, const int& port) {
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr || port == 0)
    return MakeError(absl::StatusCode::kUnavailable, absl::StrCat("cannot listen on ", address),
                     {"CANNOT_LISTEN", {{"address", address}}, {}, {}});
  return server;
}

void Prepare(const DataPlaneServer::Options& options, grpc::ServerBuilder* builder) {
  // Two workers on one port must be an error, not a coin toss.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  for (const auto& [name, value] :
       ServerKeepalive(options.keepalive_time, options.keepalive_timeout, absl::Seconds(10)))
    builder->AddChannelArgument(name, value);
  TakeNothingCompressed(builder);
}

}  // namespace

class DataPlaneServer::Impl {
 public:
  explicit Impl(const Options& options) : service(options.board, options.pool) {}

  DataPlaneService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::Server> health;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<DataPlaneServer>> DataPlaneServer::Start(const Options& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // gRPC's own service of health brings no descriptor: reflection would name it and not describe
  // it.
  google::protobuf::LinkMessageReflection<grpc::health::v1::HealthCheckRequest>();
  auto impl = std::make_unique<Impl>(options);
  grpc::ServerBuilder builder;
  Prepare(options, &builder);
  for (const auto& [name, value] : TensorTransport(ReadAhead::kAdaptive))
    builder.AddChannelArgument(name, value);
  builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &impl->port);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxStreamMessageBytes));
  builder.RegisterService(&impl->service);
  auto server = Build(&builder, options.address, impl->port);
  if (!server.ok()) return server.status();
  impl->server = *std::move(server);
  if (!options.health_address.empty()) {
    int health_port = 0;
    grpc::ServerBuilder health_builder;
    Prepare(options, &health_builder);
    health_builder.AddListeningPort(options.health_address, grpc::InsecureServerCredentials(),
                                    &health_port);
    auto health = Build(&health_builder, options.health_address, health_port);
    if (!health.ok()) return health.status();
    impl->health = *std::move(health);
  }
  std::unique_ptr<DataPlaneServer> started(new DataPlaneServer(std::move(impl)));
  started->SetReady(false);
  return started;
}

DataPlaneServer::DataPlaneServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DataPlaneServer::~DataPlaneServer() {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(2);
  if (impl_->health != nullptr) impl_->health->Shutdown(deadline);
  impl_->server->Shutdown(deadline);
}

int DataPlaneServer::port() const { return impl_->port; }

void DataPlaneServer::SetReady(bool ready) {
  for (grpc::Server* server : {impl_->server.get(), impl_->health.get()}) {
    if (server == nullptr || server->GetHealthCheckService() == nullptr) continue;
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    for (const char* name : {"", "readiness", "annulus.v1.DataPlane"})
      health->SetServingStatus(name, ready);
    health->SetServingStatus("liveness", true);
  }
}

}  // namespace annulus
