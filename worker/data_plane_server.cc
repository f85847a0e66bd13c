#include "worker/data_plane_server.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/rpc/keepalive.h"
#include "proto/rpc/listen.h"
#include "proto/wire/plain_messages.h"
#include "proto/wire/tensor_stream.h"
#include "proto/wire/tensor_transport.h"

namespace annulus {
namespace {

constexpr int kMaxStreamsPerConnection = 256;

void Prepare(const DataPlaneServer::Options& options, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  for (const auto& [name, value] :
       ServerKeepalive(options.keepalive_time, options.keepalive_timeout, absl::Seconds(10)))
    builder->AddChannelArgument(name, value);
  TakeNothingCompressed(builder);
}

}  // namespace

class DataPlaneServer::Impl {
 public:
  explicit Impl(const Options& options) : service(options.board, options.pool, options.patience) {}

  DataPlaneService service;
  ListeningServer data;
  ListeningServer health;  // Server of the separate health service, if any.
};

absl::StatusOr<std::unique_ptr<DataPlaneServer>> DataPlaneServer::Start(const Options& options) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  // gRPC's health service does not link its descriptor; without it reflection could not describe
  // the service.
  google::protobuf::LinkMessageReflection<grpc::health::v1::HealthCheckRequest>();
  auto impl = std::make_unique<Impl>(options);
  grpc::ServerBuilder builder;
  Prepare(options, &builder);
  for (const auto& [name, value] : TensorTransport(ReadAhead::kAdaptive))
    builder.AddChannelArgument(name, value);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxStreamMessageBytes));
  builder.RegisterService(&impl->service);
  ASSIGN_OR_RETURN(impl->data,
                   Listen(&builder, options.address, grpc::InsecureServerCredentials()));
  if (!options.health_address.empty()) {
    grpc::ServerBuilder health_builder;
    Prepare(options, &health_builder);
    ASSIGN_OR_RETURN(impl->health, Listen(&health_builder, options.health_address,
                                          grpc::InsecureServerCredentials()));
  }
  std::unique_ptr<DataPlaneServer> started(new DataPlaneServer(std::move(impl)));
  started->SetReady(false);
  return started;
}

DataPlaneServer::DataPlaneServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DataPlaneServer::~DataPlaneServer() {
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(2);
  if (impl_->health.server != nullptr) impl_->health.server->Shutdown(deadline);
  impl_->data.server->Shutdown(deadline);
}

int DataPlaneServer::port() const { return impl_->data.port; }

void DataPlaneServer::SetReady(bool ready) {
  for (grpc::Server* server : {impl_->data.server.get(), impl_->health.server.get()}) {
    if (server == nullptr || server->GetHealthCheckService() == nullptr) continue;
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    for (const char* name : {"", "readiness", "annulus.v1.DataPlane"})
      health->SetServingStatus(name, ready);
    health->SetServingStatus("liveness", true);
  }
}

}  // namespace annulus
